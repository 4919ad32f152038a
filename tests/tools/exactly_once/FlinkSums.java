import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.functions.RichMapFunction;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Sums up the numbers of each of two partitions, in Flink's mini cluster, with the exactly-once sink.
 *
 * Arguments: bootstrap servers, the topic read, the topic written, a directory for checkpoints; a fifth argument is
 * the checkpoint to go on from. A record that is written says NUMBER SUM.
 */
public class FlinkSums {
    static final int PARTITIONS = 2;

    static class Sum extends RichMapFunction<String, String> {
        private transient ValueState<Long> total;

        @Override
        public void open(OpenContext context) {
            total = getRuntimeContext().getState(new ValueStateDescriptor<>("total", Types.LONG));
        }

        @Override
        public String map(String number) throws Exception {
            Thread.sleep(5); // so that records come over several checkpoints
            long before = total.value() == null ? 0 : total.value();
            total.update(before + Long.parseLong(number));
            return number + " " + total.value();
        }
    }

    static class Place implements KafkaRecordSerializationSchema<String> {
        private final String topic;

        Place(String topic) {
            this.topic = topic;
        }

        @Override
        public ProducerRecord<byte[], byte[]> serialize(String text, KafkaSinkContext context, Long timestamp) {
            int partition = (int) (Long.parseLong(text.split(" ")[0]) % PARTITIONS);
            return new ProducerRecord<>(topic, partition, null, text.getBytes(StandardCharsets.UTF_8));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Configuration own = new Configuration();
        own.setString("execution.checkpointing.interval", "300 ms");
        own.setString("execution.checkpointing.dir", "file://" + arguments[3]);
        own.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        own.setString("restart-strategy.type", "fixed-delay");
        own.setString("restart-strategy.fixed-delay.attempts", "1000000");
        own.setString("restart-strategy.fixed-delay.delay", "500 ms");
        own.setString("taskmanager.memory.network.min", "16 mb");
        own.setString("taskmanager.memory.network.max", "16 mb");
        if (arguments.length > 4) {
            own.setString("execution.state-recovery.path", arguments[4]);
        }
        StreamExecutionEnvironment env = StreamExecutionEnvironment.createLocalEnvironment(1, own);
        KafkaSource<String> source = KafkaSource.<String>builder()
            .setBootstrapServers(arguments[0])
            .setTopics(arguments[1])
            .setGroupId(arguments[2])
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setProperty("isolation.level", "read_committed")
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> sink = KafkaSink.<String>builder()
            .setBootstrapServers(arguments[0])
            .setRecordSerializer(new Place(arguments[2]))
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(arguments[2])
            .setProperty("transaction.timeout.ms", "600000") // longer than a job may stand still
            .build();
        env.fromSource(source, WatermarkStrategy.noWatermarks(), "numbers")
            .keyBy(number -> Long.parseLong(number) % PARTITIONS, Types.LONG)
            .map(new Sum())
            .sinkTo(sink);
        env.execute("sums");
    }
}
