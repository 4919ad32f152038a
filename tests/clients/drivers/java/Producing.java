// Producing, the same from 0.8.2 on; what differs is how a record is made (Records).

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;

final class Producing {
    private static KafkaProducer<byte[], byte[]> producer(Map<String, Object> command) {
        Properties settings = new Properties();
        String serializer = "org.apache.kafka.common.serialization.ByteArraySerializer";
        settings.put("bootstrap.servers", Driver.server);
        settings.put("key.serializer", serializer);
        settings.put("value.serializer", serializer);
        settings.put("acks", "all");
        settings.put("compression.type", command.get("codec"));
        long lingerMs = command.get("linger_ms") == null ? 100 : ((Number) command.get("linger_ms")).longValue();
        settings.put("linger.ms", String.valueOf(lingerMs));
        settings.put("batch.size", String.valueOf(1 << 20));
        settings.put("max.block.ms", "60000");
        settings.put("max.in.flight.requests.per.connection", "1");
        settings.put("request.timeout.ms", "60000");
        settings.put("delivery.timeout.ms", String.valueOf(60_000 + lingerMs)); // less is refused
        if (command.get("idempotent") != null) {
            settings.put("enable.idempotence", String.valueOf(command.get("idempotent")));
        }
        return new KafkaProducer<>(settings);
    }

    static void produce(Map<String, Object> command) throws Exception {
        List<Map<String, Object>> batches = Lines.list(command.get("batches"));
        List<List<Future<RecordMetadata>>> pending = new ArrayList<>();
        try (KafkaProducer<byte[], byte[]> client = producer(command)) {
            for (Map<String, Object> batch : batches) {
                List<Future<RecordMetadata>> futures = new ArrayList<>();
                for (Map<String, Object> record : Lines.list(batch.get("records"))) {
                    @SuppressWarnings("unchecked")
                    List<Object> headers = (List<Object>) record.get("headers");
                    futures.add(client.send(Records.make(
                            (String) batch.get("topic"),
                            Lines.number(batch.get("partition")),
                            (Long) record.get("timestamp"),
                            Lines.raw((String) record.get("key")),
                            Lines.raw((String) record.get("value")),
                            headers)));
                }
                pending.add(futures);
            }
            for (int i = 0; i < batches.size(); i++) {
                Map<String, Object> answer = Lines.place(batches.get(i));
                try {
                    List<Object> offsets = new ArrayList<>();
                    for (Future<RecordMetadata> future : pending.get(i)) {
                        offsets.add(future.get(90, TimeUnit.SECONDS).offset());
                    }
                    answer.put("offsets", offsets);
                } catch (ExecutionException error) {
                    answer.put("error", Lines.failure(error.getCause()));
                } catch (TimeoutException error) {
                    answer.put("error", Lines.failure(error));
                }
                Lines.say(answer);
            }
        }
    }
}
