// Transactions before 0.11: there are none.

import java.util.Map;

final class Transactions {
    static Map<String, Object> run(Map<String, Object> command) {
        throw new UnsupportedOperationException("this client has no transactions");
    }
}
