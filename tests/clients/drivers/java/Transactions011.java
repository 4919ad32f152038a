// Transactions, from 0.11 on: producers by name, and copies of records with their offsets. How the group is named
// when offsets are sent differs (SendOffsets).

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;

final class Transactions {
    private static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private static final Set<String> begun = new HashSet<>();

    static Map<String, Object> run(Map<String, Object> command) throws Exception {
        String name = (String) command.get("as");
        try {
            switch ((String) command.get("what")) {
                case "open":
                    return open(name, (String) command.get("id"));
                case "write":
                    return write(name, command);
                case "copy":
                    return copy(name, command);
                default:
                    producers.remove(name).close();
                    return Collections.emptyMap();
            }
        } catch (KafkaException error) {
            Map<String, Object> answer = new LinkedHashMap<>();
            answer.put("error", Lines.failure(reason(error)));
            answer.put("abort", abort(name));
            return answer;
        }
    }

    /** What applications do after an error; what was thrown, if anything. */
    private static Object abort(String name) {
        begun.remove(name);
        if (!producers.containsKey(name)) {
            return null;
        }
        try {
            producers.get(name).abortTransaction();
            return null;
        } catch (KafkaException error) {
            return Lines.failure(reason(error));
        }
    }

    /** What a producer that is in an error state wraps. */
    private static Throwable reason(KafkaException error) {
        boolean wraps = error.getClass() == KafkaException.class && error.getCause() instanceof KafkaException;
        return wraps ? error.getCause() : error;
    }

    private static Map<String, Object> open(String name, String id) {
        Properties settings = new Properties();
        String serializer = "org.apache.kafka.common.serialization.ByteArraySerializer";
        settings.put("bootstrap.servers", Driver.server);
        settings.put("key.serializer", serializer);
        settings.put("value.serializer", serializer);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", "60000");
        KafkaProducer<byte[], byte[]> client = new KafkaProducer<>(settings);
        client.initTransactions();
        producers.put(name, client);
        return Collections.emptyMap();
    }

    private static KafkaProducer<byte[], byte[]> begin(String name) {
        KafkaProducer<byte[], byte[]> client = producers.get(name);
        if (begun.add(name)) {
            client.beginTransaction();
        }
        return client;
    }

    private static void end(String name, Object how, List<Future<RecordMetadata>> sent) throws Exception {
        KafkaProducer<byte[], byte[]> client = producers.get(name);
        client.flush();
        for (Future<RecordMetadata> one : sent) {
            try {
                one.get(60, TimeUnit.SECONDS);
            } catch (ExecutionException error) {
                throw (KafkaException) error.getCause();
            }
        }
        if ("commit".equals(how)) {
            client.commitTransaction();
        } else if ("abort".equals(how)) {
            client.abortTransaction();
        }
        if (how != null) {
            begun.remove(name);
        }
    }

    private static Map<String, Object> write(String name, Map<String, Object> command) throws Exception {
        KafkaProducer<byte[], byte[]> client = begin(name);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (Map<String, Object> batch : Lines.list(command.get("batches"))) {
            for (Map<String, Object> record : Lines.list(batch.get("records"))) {
                int partition = Lines.number(batch.get("partition"));
                byte[] value = Lines.raw((String) record.get("value"));
                sent.add(client.send(new ProducerRecord<>((String) batch.get("topic"), partition, null, value)));
            }
        }
        end(name, command.get("end"), sent);
        return Collections.emptyMap();
    }

    private static Map<String, Object> copy(String name, Map<String, Object> command) throws Exception {
        String topic = (String) command.get("topic");
        int count = Lines.number(command.get("count"));
        Properties settings = new Properties();
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("max.poll.records", "1"); // so that none is handed out beyond the count
        List<Object> read = new ArrayList<>();
        try (KafkaConsumer<byte[], byte[]> reader = Consuming.consumer((String) command.get("group"), settings)) {
            reader.subscribe(Collections.singletonList(topic));
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            Map<TopicPartition, OffsetAndMetadata> nexts = new HashMap<>();
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            while (records.size() < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException(records.size() + " of " + count + " records");
                }
                Poll.poll(reader, 200).forEach(records::add);
            }
            KafkaProducer<byte[], byte[]> client = begin(name);
            for (ConsumerRecord<byte[], byte[]> record : records) {
                byte[] value = Lines.raw(Lines.text(record.value()) + " copied");
                sent.add(client.send(new ProducerRecord<>((String) command.get("to"), record.partition(), null, value)));
                TopicPartition place = new TopicPartition(topic, record.partition());
                nexts.put(place, new OffsetAndMetadata(record.offset() + 1));
                read.add(Arrays.<Object>asList((long) record.partition(), record.offset()));
            }
            SendOffsets.send(client, nexts, reader, (String) command.get("group"));
            end(name, command.get("end"), sent);
        }
        return Collections.<String, Object>singletonMap("read", read);
    }
}
