// Just enough JSON for the line protocol: objects, arrays, strings, whole numbers, true, false, null.
// Old client jars bring no parser of their own, and the driver should need nothing but the client.

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

final class Json {
    private final String text;
    private int at;

    private Json(String text) {
        this.text = text;
    }

    static Object parse(String text) {
        Json reader = new Json(text);
        Object value = reader.value();
        reader.space();
        if (reader.at != text.length()) {
            throw reader.error("end of line");
        }
        return value;
    }

    private IllegalArgumentException error(String wanted) {
        return new IllegalArgumentException("JSON: expected " + wanted + " at " + at);
    }

    private void space() {
        while (at < text.length() && text.charAt(at) <= ' ') {
            at++;
        }
    }

    private boolean take(char wanted) {
        space();
        if (at < text.length() && text.charAt(at) == wanted) {
            at++;
            return true;
        }
        return false;
    }

    private Object value() {
        space();
        if (at == text.length()) {
            throw error("a value");
        }
        switch (text.charAt(at)) {
            case '{':
                return object();
            case '[':
                return array();
            case '"':
                return string();
            default:
                return word();
        }
    }

    private Map<String, Object> object() {
        Map<String, Object> found = new LinkedHashMap<>();
        at++;
        if (take('}')) {
            return found;
        }
        do {
            space();
            String name = string();
            if (!take(':')) {
                throw error("':'");
            }
            found.put(name, value());
        } while (take(','));
        if (!take('}')) {
            throw error("'}'");
        }
        return found;
    }

    private List<Object> array() {
        List<Object> found = new ArrayList<>();
        at++;
        if (take(']')) {
            return found;
        }
        do {
            found.add(value());
        } while (take(','));
        if (!take(']')) {
            throw error("']'");
        }
        return found;
    }

    private String string() {
        if (at == text.length() || text.charAt(at) != '"') {
            throw error("a string");
        }
        StringBuilder out = new StringBuilder();
        for (at++; at < text.length(); at++) {
            char c = text.charAt(at);
            if (c == '"') {
                at++;
                return out.toString();
            }
            out.append(c == '\\' ? escape() : c);
        }
        throw error("'\"'");
    }

    private char escape() {
        char c = text.charAt(++at);
        switch (c) {
            case 'n':
                return '\n';
            case 't':
                return '\t';
            case 'r':
                return '\r';
            case 'b':
                return '\b';
            case 'f':
                return '\f';
            case 'u':
                at += 4;
                return (char) Integer.parseInt(text.substring(at - 3, at + 1), 16);
            default:
                return c;
        }
    }

    private Object word() {
        int from = at;
        while (at < text.length() && "+-.eEtrufalsn0123456789".indexOf(text.charAt(at)) >= 0) {
            at++;
        }
        String word = text.substring(from, at);
        switch (word) {
            case "null":
                return null;
            case "true":
                return Boolean.TRUE;
            case "false":
                return Boolean.FALSE;
            default:
                return Long.valueOf(word);
        }
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(value, out);
        return out.toString();
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map) {
            char separator = '{';
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(separator);
                write(entry.getKey(), out);
                out.append(':');
                write(entry.getValue(), out);
                separator = ',';
            }
            out.append(separator == '{' ? "{}" : "}");
        } else if (value instanceof List) {
            char separator = '[';
            for (Object one : (List<?>) value) {
                out.append(separator);
                write(one, out);
                separator = ',';
            }
            out.append(separator == '[' ? "[]" : "]");
        } else if (value instanceof String) {
            quote((String) value, out);
        } else {
            out.append(value);
        }
    }

    private static void quote(String value, StringBuilder out) {
        out.append('"');
        for (int i = 0; i < value.length(); i++) {
            char c = value.charAt(i);
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ' || c > '~') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
