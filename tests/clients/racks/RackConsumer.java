// Reads partition 0 of a topic from its beginning on, and prints the values, one a line.
//
// Arguments: bootstrap servers, topic, rack. It ends when its standard input does.

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public final class RackConsumer {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("client.rack", arguments[2]);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        PrintStream out = new PrintStream(System.out, true);
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings);
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        consumer.assign(List.of(partition));
        consumer.seek(partition, 0);
        while (System.in.available() == 0) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                out.println(new String(record.value(), StandardCharsets.UTF_8));
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
