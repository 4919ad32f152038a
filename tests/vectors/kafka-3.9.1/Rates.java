import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.SimpleRate;

/** Writes byte_rates.tsv: bytes recorded at random times, and what SimpleRate measures. */
public class Rates {
  public static void main(String[] arguments) {
    Random random = new Random(7);
    System.out.println(
        "# run, windows of a second, time in ms, bytes that are recorded, or the rate that SimpleRate measures");
    int[] windows = {11, 11, 3, 1, 2, 11};
    for (int run = 0; run < windows.length; run++) {
      MetricConfig config = new MetricConfig().timeWindow(1, TimeUnit.SECONDS).samples(windows[run]);
      SimpleRate rate = new SimpleRate();
      long now = 0;
      for (int step = 0; step < 25; step++) {
        now += random.nextInt(step % 9 == 8 ? 15000 : 1500);
        String row = run + "\t" + windows[run] + "\t" + now + "\t";
        if (random.nextInt(3) > 0) {
          int bytes = random.nextInt(100000);
          rate.record(config, bytes, now);
          System.out.println(row + bytes + "\t");
        } else {
          System.out.println(row + "\t" + rate.measure(config, now));
        }
      }
    }
  }
}
