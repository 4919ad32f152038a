// Driver of Apache Kafka's Java clients, one source for 0.9 to 3.x (see lines.py for the protocol).
// It keeps to what KafkaProducer and KafkaConsumer have had since 0.9; what differs between
// generations is in Records. Arguments: the client's version, the broker's address.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.protocol.Errors;

final class Driver {
    private static final int LONG_VALUE_BYTES = 300;
    private static final PrintStream OUT = System.out;
    private static String server;

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

    private static void say(Map<String, Object> line) {
        OUT.print(Json.write(line) + "\n");
        OUT.flush();
    }

    private static void say(String name, Object value) {
        say(Collections.singletonMap(name, value));
    }

    @SuppressWarnings("unchecked")
    private static List<Map<String, Object>> list(Object value) {
        return (List<Map<String, Object>>) value;
    }

    private static int number(Object value) {
        return ((Long) value).intValue();
    }

    private static Map<String, Object> place(Map<String, Object> source) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("topic", source.get("topic"));
        answer.put("partition", source.get("partition"));
        return answer;
    }

    private static Map<String, Object> failure(Throwable error) {
        Map<String, Object> out = new LinkedHashMap<>();
        int code = Errors.forException(error).code();
        out.put("code", code == -1 ? null : (long) code);
        out.put("name", error.getClass().getSimpleName());
        out.put("message", String.valueOf(error.getMessage()));
        return out;
    }

    private static KafkaProducer<byte[], byte[]> producer(Map<String, Object> command) {
        Properties settings = new Properties();
        String serializer = "org.apache.kafka.common.serialization.ByteArraySerializer";
        settings.put("bootstrap.servers", server);
        settings.put("key.serializer", serializer);
        settings.put("value.serializer", serializer);
        settings.put("acks", "all");
        settings.put("compression.type", command.get("codec"));
        settings.put("linger.ms", "100");
        settings.put("batch.size", String.valueOf(1 << 20));
        settings.put("max.block.ms", "20000");
        settings.put("request.timeout.ms", "15000");
        settings.put("delivery.timeout.ms", "20000");
        if (command.get("idempotent") != null) {
            settings.put("enable.idempotence", String.valueOf(command.get("idempotent")));
        }
        return new KafkaProducer<>(settings);
    }

    private static void produce(Map<String, Object> command) throws Exception {
        List<Map<String, Object>> batches = list(command.get("batches"));
        List<List<Future<RecordMetadata>>> pending = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> client = producer(command)) {
            for (Map<String, Object> batch : batches) {
                List<Future<RecordMetadata>> futures = new ArrayList<>();
                for (Map<String, Object> record : list(batch.get("records"))) {
                    @SuppressWarnings("unchecked")
                    List<Object> headers = (List<Object>) record.get("headers");
                    futures.add(client.send(Records.make(
                            (String) batch.get("topic"),
                            number(batch.get("partition")),
                            (Long) record.get("timestamp"),
                            raw((String) record.get("key")),
                            raw((String) record.get("value")),
                            headers)));
                }
                pending.add(futures);
            }
            for (int i = 0; i < batches.size(); i++) {
                Map<String, Object> answer = place(batches.get(i));
                try {
                    List<Object> offsets = new ArrayList<>();
                    for (Future<RecordMetadata> future : pending.get(i)) {
                        offsets.add(future.get(30, TimeUnit.SECONDS).offset());
                    }
                    answer.put("offsets", offsets);
                } catch (ExecutionException error) {
                    answer.put("error", failure(error.getCause()));
                } catch (TimeoutException error) {
                    answer.put("error", failure(error));
                }
                say(answer);
            }
        }
    }

    private static KafkaConsumer<byte[], byte[]> consumer() {
        Properties settings = new Properties();
        String deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        settings.put("bootstrap.servers", server);
        settings.put("key.deserializer", deserializer);
        settings.put("value.deserializer", deserializer);
        settings.put("group.id", "matrix");
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("fetch.max.wait.ms", "50");
        settings.put("check.crcs", "true");
        return new KafkaConsumer<>(settings);
    }

    private static void consume(Map<String, Object> command) {
        Map<TopicPartition, Long> missing = new LinkedHashMap<>();
        Map<TopicPartition, List<Object>> found = new LinkedHashMap<>();
        try (KafkaConsumer<byte[], byte[]> client = consumer()) {
            List<Map<String, Object>> wanted = list(command.get("partitions"));
            for (Map<String, Object> one : wanted) {
                TopicPartition place = new TopicPartition((String) one.get("topic"), number(one.get("partition")));
                missing.put(place, (Long) one.get("count"));
                found.put(place, new ArrayList<>());
            }
            client.assign(new ArrayList<>(found.keySet()));
            for (Map<String, Object> one : wanted) {
                client.seek(
                        new TopicPartition((String) one.get("topic"), number(one.get("partition"))),
                        (Long) one.get("from"));
            }
            long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos((Long) command.get("timeout_ms"));
            while (!missing.isEmpty() && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : Poll.poll(client)) {
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    List<Object> records = found.get(place);
                    Map<String, Object> line = new LinkedHashMap<>();
                    line.put("offset", record.offset());
                    line.put("key", text(record.key()));
                    line.put("value", text(record.value()));
                    Records.describe(record, line);
                    records.add(line);
                    Long count = missing.get(place);
                    if (count != null && records.size() >= count) {
                        missing.remove(place);
                    }
                }
            }
        }
        for (Map.Entry<TopicPartition, List<Object>> entry : found.entrySet()) {
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("topic", entry.getKey().topic());
            answer.put("partition", (long) entry.getKey().partition());
            answer.put("records", entry.getValue());
            say(answer);
        }
    }

    private static void find(Map<String, Object> command) {
        Map<TopicPartition, Long> targets = new LinkedHashMap<>();
        for (Map<String, Object> one : list(command.get("partitions"))) {
            targets.put(
                    new TopicPartition((String) one.get("topic"), number(one.get("partition"))),
                    (Long) one.get("timestamp"));
        }
        try (KafkaConsumer<byte[], byte[]> client = consumer()) {
            for (Map.Entry<TopicPartition, Long> entry : Records.find(client, targets).entrySet()) {
                Map<String, Object> answer = new LinkedHashMap<>();
                answer.put("topic", entry.getKey().topic());
                answer.put("partition", (long) entry.getKey().partition());
                answer.put("offset", entry.getValue());
                say(answer);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        server = arguments[1];
        say("ready", "kafka-clients " + arguments[0]);
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            @SuppressWarnings("unchecked")
            Map<String, Object> command = (Map<String, Object>) Json.parse(line);
            String operation = (String) command.get("op");
            try {
                if (operation.equals("produce")) {
                    produce(command);
                } else if (operation.equals("find")) {
                    find(command);
                } else {
                    consume(command);
                }
            } catch (Exception error) {
                error.printStackTrace();
                say("fatal", error.toString());
            }
            say("done", operation);
        }
        System.exit(0);
    }
}
