// Produces to every partition of a topic, in turn, and prints when each record was acknowledged.
//
// Arguments: bootstrap servers, topic, number of partitions, milliseconds between two rounds of sends.
// A line is "partition nanoseconds" of CLOCK_MONOTONIC, or "! partition error". All settings are the
// client's defaults, by which it is idempotent with acks=all. It ends when its standard input does.

import java.io.PrintStream;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class JavaProducer {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("key.serializer", ByteArraySerializer.class.getName());
        settings.put("value.serializer", ByteArraySerializer.class.getName());
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[2]);
        long pause = Long.parseLong(arguments[3]) * 1_000_000;
        PrintStream out = new PrintStream(System.out, true);
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings);
        long next = System.nanoTime();
        while (System.in.available() == 0) {
            for (int partition = 0; partition < partitions; partition++) {
                int to = partition;
                producer.send(new ProducerRecord<>(topic, to, null, new byte[100]), (done, error) ->
                    out.println(error == null ? to + " " + System.nanoTime() : "! " + to + " " + error));
            }
            next += pause;
            long left = next - System.nanoTime();
            if (left > 0) {
                Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
            } else {
                next -= left; // it does not make up for sends that were late
            }
        }
        Runtime.getRuntime().halt(0);
    }
}
