import java.io.PrintStream;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

/** Writes quota_rates.tsv and quota_tokens.tsv: what Kafka measures of clients that have quotas. */
public class Quotas {
  private static final int[] WINDOWS = {11, 11, 3, 2, 11, 5};

  public static void main(String[] arguments) throws Exception {
    rates();
    tokens();
  }

  private static MetricConfig config(int windows, double limit) {
    return new MetricConfig()
        .timeWindow(1, TimeUnit.SECONDS)
        .samples(windows)
        .quota(Quota.upperBound(limit));
  }

  private static void rates() throws Exception {
    Random random = new Random(11);
    try (PrintStream out = new PrintStream("quota_rates.tsv")) {
      out.println(
          "# run, windows of a second, limit, time in ms, what is recorded, or the rate that Rate measures"
              + " and (rate - limit) / limit of its windowSize, rounded");
      for (int run = 0; run < WINDOWS.length; run++) {
        double limit = 1000 + random.nextInt(20000);
        MetricConfig config = config(WINDOWS[run], limit);
        Rate rate = new Rate();
        long now = 0;
        for (int step = 0; step < 25; step++) {
          now += random.nextInt(step % 9 == 8 ? 15000 : 1500);
          String row = run + "\t" + WINDOWS[run] + "\t" + limit + "\t" + now + "\t";
          if (random.nextInt(3) > 0) {
            double size = random.nextInt(8) > 0 ? random.nextInt(40000) : -random.nextInt(500);
            rate.record(config, size, now);
            out.println(row + size + "\t\t");
          } else {
            double value = rate.measure(config, now);
            long wait = Math.round((value - limit) / limit * rate.windowSize(config, now));
            out.println(row + "\t" + value + "\t" + Math.max(wait, 0));
          }
        }
      }
    }
  }

  private static void tokens() throws Exception {
    Random random = new Random(12);
    try (PrintStream out = new PrintStream("quota_tokens.tsv")) {
      out.println(
          "# run, windows of a second, limit, time in ms, tokens that are taken, or those that TokenBucket has");
      for (int run = 0; run < WINDOWS.length; run++) {
        double limit = (1 + random.nextInt(20)) / 2.0;
        MetricConfig config = config(WINDOWS[run], limit);
        TokenBucket bucket = new TokenBucket();
        long now = 1_700_000_000_000L;
        for (int step = 0; step < 25; step++) {
          now += random.nextInt(step % 9 == 8 ? 15000 : 1500);
          String row = run + "\t" + WINDOWS[run] + "\t" + limit + "\t" + now + "\t";
          if (random.nextInt(3) > 0) {
            int taken = random.nextInt(30);
            bucket.record(config, taken, now);
            out.println(row + taken + "\t");
          } else {
            out.println(row + "\t" + bucket.measure(config, now));
          }
        }
      }
    }
  }
}
