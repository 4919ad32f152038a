// A producer that stays open and sends numbered records at a pace; the same from 0.8.2 on.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.Callback;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;

final class Sending {
    private static KafkaProducer<byte[], byte[]> producer;

    private final List<Object> acknowledged = new ArrayList<>();
    private final List<Object> errors = new ArrayList<>();
    private long longestNs;

    private static KafkaProducer<byte[], byte[]> open(boolean idempotent) {
        Properties settings = new Properties();
        String serializer = "org.apache.kafka.common.serialization.ByteArraySerializer";
        settings.put("bootstrap.servers", Driver.server);
        settings.put("key.serializer", serializer);
        settings.put("value.serializer", serializer);
        settings.put("acks", "all");
        if (idempotent) {
            settings.put("enable.idempotence", "true");
        } else { // before 2.1 nothing is sent again by default
            settings.put("retries", String.valueOf(Integer.MAX_VALUE));
            settings.put("max.in.flight.requests.per.connection", "1");
            // A broker that is silent for less than this must not make it send a record twice.
            settings.put("request.timeout.ms", "120000");
        }
        return new KafkaProducer<>(settings);
    }

    private synchronized void done(long number, long sentNs, RecordMetadata stored, Exception error) {
        if (error != null) {
            errors.add(Arrays.<Object>asList(number, error.toString()));
            return;
        }
        acknowledged.add(Arrays.<Object>asList(number, (long) stored.partition(), stored.offset()));
        longestNs = Math.max(longestNs, System.nanoTime() - sentNs);
    }

    private Callback report(final long number) {
        final long sentNs = System.nanoTime();
        return new Callback() {
            @Override
            public void onCompletion(RecordMetadata stored, Exception error) {
                done(number, sentNs, stored, error);
            }
        };
    }

    private synchronized Map<String, Object> answer(long next) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("next", next);
        answer.put("acknowledged", acknowledged);
        answer.put("errors", errors);
        answer.put("longest_ms", longestNs / 1_000_000);
        return answer;
    }

    static void send(Map<String, Object> command) throws Exception {
        if (producer == null) {
            producer = open((Boolean) command.get("idempotent"));
        }
        String topic = (String) command.get("topic");
        int partitions = Lines.number(command.get("partitions"));
        long first = (Long) command.get("from");
        long next = first;
        long everyNs = (Long) command.get("every_ms") * 1_000_000;
        long lengthNs = (Long) command.get("ms") * 1_000_000;
        Sending sending = new Sending();
        List<Future<RecordMetadata>> pending = new ArrayList<>();
        long began = System.nanoTime();
        for (long passed = 0; passed < lengthNs; passed = System.nanoTime() - began) {
            for (; (next - first) * everyNs < passed; next++) {
                byte[] value = Lines.raw(topic + " " + next);
                pending.add(producer.send(
                        Records.make(topic, (int) (next % partitions), null, null, value, null), sending.report(next)));
            }
            Thread.sleep(5);
        }
        for (Future<RecordMetadata> one : pending) {
            try {
                one.get();
            } catch (ExecutionException told) {
                continue; // its callback tells
            }
        }
        Lines.say(sending.answer(next));
    }
}
