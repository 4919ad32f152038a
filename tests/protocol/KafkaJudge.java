// Reads lines "key direction version hex", decodes each with Kafka's own classes, encodes it again and
// prints the hex; "unsupported" for a version this Kafka has dropped or does not have yet.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

public class KafkaJudge {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = new PrintStream(System.out, false);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(judge(line.split(" ", -1)));
        }
        out.flush();
    }

    private static String judge(String[] words) {
        ApiMessageType type = ApiMessageType.fromApiKey(Short.parseShort(words[0]));
        ApiMessage message = words[1].equals("request") ? type.newRequest() : type.newResponse();
        short version = Short.parseShort(words[2]);
        if (version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
            return "unsupported";
        }
        try {
            ByteBuffer given = ByteBuffer.wrap(HexFormat.of().parseHex(words[3]));
            message.read(new ByteBufferAccessor(given), version);
            if (given.hasRemaining()) {
                return given.remaining() + " bytes left over by " + message;
            }
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(written), cache, version);
            return HexFormat.of().formatHex(written.array());
        } catch (RuntimeException error) {
            return error.toString();
        }
    }
}
