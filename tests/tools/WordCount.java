import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

/**
 * Counts the words of a topic's lines, each for the day (UTC) its record's time lies in.
 *
 * Arguments: bootstrap servers, application id, the topic read, the topic written, a directory for state. A count is
 * a record of key WORD@START, where START is the day's first millisecond, and goes out with every word. A sixth
 * argument is the processing guarantee.
 */
public class WordCount {
    public static void main(String[] arguments) {
        Properties own = new Properties();
        own.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        own.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        own.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
        own.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        own.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.String().getClass());
        own.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        own.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        own.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 200);
        if (arguments.length > 5) {
            own.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, arguments[5]);
            own.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 10_000);
        } else {
            // Whose session ends counts once more what it has not committed: none ends while the machine is busy.
            own.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 600_000);
        }
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("words"))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofDays(1), Duration.ofDays(36_500)))
            .count(Materialized.as("counts"))
            .toStream((word, count) -> word.key() + "@" + word.window().start())
            .mapValues(count -> Long.toString(count))
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), own);
        streams.setStateListener((now, before) -> System.out.println(before + " -> " + now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(120))));
        streams.start();
    }
}
