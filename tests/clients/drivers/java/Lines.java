// The line protocol between the matrix and the drivers in Java; see lines.py.

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;

final class Lines {
    private static final int LONG_VALUE_BYTES = 300;
    private static final PrintStream OUT = System.out;

    static byte[] raw(String value) {
        return value == null ? null : value.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] data) {
        if (data == null) {
            return null;
        }
        if (data.length <= LONG_VALUE_BYTES) {
            return new String(data, StandardCharsets.UTF_8);
        }
        try {
            StringBuilder out = new StringBuilder("sha1:");
            for (byte b : MessageDigest.getInstance("SHA-1").digest(data)) {
                out.append(String.format("%02x", b));
            }
            return out.append(':').append(data.length).toString();
        } catch (java.security.NoSuchAlgorithmException impossible) {
            throw new IllegalStateException(impossible);
        }
    }

    static void say(Map<String, Object> line) {
        OUT.print(Json.write(line) + "\n");
        OUT.flush();
    }

    static void say(String name, Object value) {
        say(Collections.singletonMap(name, value));
    }

    @SuppressWarnings("unchecked")
    static List<Map<String, Object>> list(Object value) {
        return (List<Map<String, Object>>) value;
    }

    static int number(Object value) {
        return ((Long) value).intValue();
    }

    static Map<String, Object> place(Map<String, Object> source) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("topic", source.get("topic"));
        answer.put("partition", source.get("partition"));
        return answer;
    }

    static Map<String, Object> failure(Throwable error) {
        Map<String, Object> out = new LinkedHashMap<>();
        int code = Errors.forException(error).code();
        out.put("code", code == -1 ? null : (long) code);
        out.put("name", error.getClass().getSimpleName());
        out.put("message", String.valueOf(error.getMessage()));
        return out;
    }

    static TopicPartition placeOf(Map<String, Object> source) {
        return new TopicPartition((String) source.get("topic"), number(source.get("partition")));
    }

    static Map<String, Object> lineOf(TopicPartition place) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", place.topic());
        line.put("partition", (long) place.partition());
        return line;
    }
}
