// Administration before 0.11: no client for it, only command line tools that write to ZooKeeper.

import java.util.Map;
import java.util.concurrent.ExecutionException;

final class Administration {
    static Map<String, Object> run(Map<String, Object> command) throws ExecutionException {
        throw new UnsupportedOperationException("this client has no administration");
    }
}
