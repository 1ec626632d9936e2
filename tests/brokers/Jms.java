import jakarta.jms.*;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.Enumeration;
import java.util.HexFormat;
import java.util.List;
import java.util.TreeSet;
import org.apache.activemq.ActiveMQConnectionFactory;

/**
 * A JMS client for tests, run from source: java -cp 'lib/*' Jms.java URL send|lie|command|receive QUEUE ...
 *
 *   send QUEUE KIND...     one message of each kind: text, empty-text, null-text, big-text, zero-text, zeros-text, bytes, empty-bytes, map, object, stream, plain
 *   lie QUEUE LENGTH...    the text abc, with a property content-length that says something else
 *   name QUEUE NAME...     the text abc, with a property of that name
 *   command QUEUE          a message without a body that cancels order-17
 *   receive QUEUE COUNT    a line for each: class, body in hex, then properties and header fields as name=type:value, separated by tabs
 */
public class Jms {
    public static void main(String[] arguments) throws Exception {
        try (Connection connection = new ActiveMQConnectionFactory(arguments[0]).createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            Queue queue = session.createQueue(arguments[2]);
            if (arguments[1].equals("send")) {
                MessageProducer producer = session.createProducer(queue);
                for (String kind : Arrays.copyOfRange(arguments, 3, arguments.length)) {
                    producer.send(dressed(message(session, kind), session), DeliveryMode.PERSISTENT, 7, 3_600_000);
                }
            } else if (arguments[1].equals("lie")) {
                for (String length : Arrays.copyOfRange(arguments, 3, arguments.length)) {
                    Message message = session.createTextMessage("abc");
                    message.setStringProperty("content-length", length);
                    session.createProducer(queue).send(message);
                }
            } else if (arguments[1].equals("name")) {
                for (String name : Arrays.copyOfRange(arguments, 3, arguments.length)) {
                    Message message = session.createTextMessage("abc");
                    message.setStringProperty(name, "value");
                    session.createProducer(queue).send(message);
                }
            } else if (arguments[1].equals("command")) {
                Message message = session.createMessage();
                message.setStringProperty("x_delay_cancel", "order-17");
                session.createProducer(queue).send(message);
            } else {
                MessageConsumer consumer = session.createConsumer(queue);
                for (int left = Integer.parseInt(arguments[3]); left > 0; left--) {
                    Message message = consumer.receive(20_000);
                    System.out.println(message == null ? "nothing" : described(message));
                }
            }
        }
    }

    private static Message message(Session session, String kind) throws JMSException {
        switch (kind) {
            case "text": return session.createTextMessage("gr\u00f6\u00dfe\nline \u20ac");
            case "empty-text": return session.createTextMessage("");
            case "null-text": return session.createTextMessage();
            case "big-text": return session.createTextMessage("x".repeat(5 << 20));
            case "zero-text": return session.createTextMessage("a\u0000b");
            case "zeros-text": return session.createTextMessage("record\u0000\u0000\n".repeat(200_000));
            case "bytes": return bytes(session, new byte[] {0, 1, 10, 13, (byte) 255, 0});
            case "empty-bytes": return bytes(session, new byte[0]);
            case "map": MapMessage map = session.createMapMessage(); map.setInt("n", 1); return map;
            case "object": return session.createObjectMessage(new ArrayList<>(List.of("a")));
            case "stream": StreamMessage stream = session.createStreamMessage(); stream.writeInt(1); return stream;
            case "plain": return session.createMessage();
            default: throw new IllegalArgumentException(kind);
        }
    }

    private static Message bytes(Session session, byte[] body) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(body);
        return message;
    }

    private static Message dressed(Message message, Session session) throws JMSException {
        message.setJMSCorrelationID("c:1");
        message.setJMSType("order");
        message.setJMSReplyTo(session.createQueue("replies"));
        message.setStringProperty("colon", "a:b\\c\nd\re");
        message.setStringProperty("empty", "");
        message.setIntProperty("number", 42);
        message.setBooleanProperty("yes", true);
        message.setDoubleProperty("half", 1.5);
        message.setStringProperty("JMSXGroupID", "group");
        return message;
    }

    private static String described(Message message) throws JMSException {
        StringBuilder line = new StringBuilder();
        byte[] body = new byte[0];
        if (message instanceof TextMessage) {
            line.append("text");
            String text = ((TextMessage) message).getText();
            body = text == null ? body : text.getBytes(StandardCharsets.UTF_8);
        } else if (message instanceof BytesMessage) {
            line.append("bytes");
            body = new byte[(int) ((BytesMessage) message).getBodyLength()];
            ((BytesMessage) message).readBytes(body);
        } else {
            line.append(message.getClass().getSimpleName());
        }
        line.append('\t').append(HexFormat.of().formatHex(body));
        for (Object name : new TreeSet<>(Collections.list((Enumeration<?>) message.getPropertyNames()))) {
            field(line, (String) name, message.getObjectProperty((String) name));
        }
        field(line, "JMSXGroupID", message.getStringProperty("JMSXGroupID"));
        field(line, "JMSCorrelationID", message.getJMSCorrelationID());
        field(line, "JMSType", message.getJMSType());
        field(line, "JMSReplyTo", message.getJMSReplyTo());
        field(line, "JMSPriority", message.getJMSPriority());
        field(line, "JMSDeliveryMode", message.getJMSDeliveryMode());
        field(line, "JMSTimestamp", message.getJMSTimestamp());
        field(line, "JMSExpiration", message.getJMSExpiration());
        field(line, "JMSMessageID", message.getJMSMessageID());
        return line.toString();
    }

    private static void field(StringBuilder line, String name, Object value) {
        String text = String.valueOf(value).replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t");
        line.append('\t').append(name).append('=').append(value == null ? "null" : value.getClass().getSimpleName()).append(':').append(text);
    }
}
