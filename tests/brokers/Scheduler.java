import jakarta.jms.*;
import java.util.Arrays;
import java.util.Collections;
import java.util.Enumeration;
import java.util.TreeMap;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.ScheduledMessage;

/**
 * A JMS client that manages ActiveMQ's scheduler, as ActiveMQ's documentation has it, run from source: java -cp 'lib/*' Scheduler.java URL ...
 *
 *   BROWSE COUNT [START END]    a line for each of COUNT answers: class, body, then type and properties as name=value, separated by tabs
 *   REMOVE ID
 *   REMOVEALL [START END]
 */
public class Scheduler {
    public static void main(String[] arguments) throws Exception {
        try (Connection connection = new ActiveMQConnectionFactory(arguments[0]).createConnection()) {
            connection.start();
            Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
            String action = arguments[1];
            Message request = session.createMessage();
            request.setStringProperty(ScheduledMessage.AMQ_SCHEDULER_ACTION, action);
            String[] window = Arrays.copyOfRange(arguments, action.equals("REMOVEALL") ? 2 : 3, arguments.length);
            if (window.length == 2) {
                request.setStringProperty(ScheduledMessage.AMQ_SCHEDULER_ACTION_START_TIME, window[0]);
                request.setStringProperty(ScheduledMessage.AMQ_SCHEDULER_ACTION_END_TIME, window[1]);
            }
            if (action.equals("REMOVE")) {
                request.setStringProperty(ScheduledMessage.AMQ_SCHEDULED_ID, arguments[2]);
            }
            MessageConsumer answers = null;
            if (action.equals("BROWSE")) {
                Destination replyTo = session.createTemporaryQueue();
                answers = session.createConsumer(replyTo);
                request.setJMSReplyTo(replyTo);
            }
            session.createProducer(session.createTopic(ScheduledMessage.AMQ_SCHEDULER_MANAGEMENT_DESTINATION)).send(request);
            for (int left = answers == null ? 0 : Integer.parseInt(arguments[2]); left > 0; left--) {
                System.out.println(shown(answers.receive(15_000)));
            }
            if (answers != null && answers.receive(500) != null) {
                System.out.println("more than expected");
            }
        }
    }

    private static String shown(Message message) throws JMSException {
        if (message == null) {
            return "nothing";
        }
        TreeMap<String, String> properties = new TreeMap<>();
        Enumeration<?> names = message.getPropertyNames();
        for (Object name : Collections.list(names)) {
            properties.put((String) name, message.getStringProperty((String) name));
        }
        properties.put("JMSType", message.getJMSType());
        properties.put("JMSDeliveryMode", String.valueOf(message.getJMSDeliveryMode()));
        String body = message instanceof TextMessage ? ((TextMessage) message).getText() : message instanceof BytesMessage ? bytes((BytesMessage) message) : "";
        StringBuilder line = new StringBuilder(message.getClass().getSimpleName() + "\t" + body);
        properties.forEach((name, value) -> line.append("\t" + name + "=" + value));
        return line.toString();
    }

    private static String bytes(BytesMessage message) throws JMSException {
        byte[] body = new byte[(int) message.getBodyLength()];
        message.readBytes(body);
        return new String(body, java.nio.charset.StandardCharsets.UTF_8);
    }
}
