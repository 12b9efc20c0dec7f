// Package kafka gives tests and developers a real Apache Kafka broker: one node in KRaft mode (broker and
// controller in one process) on loopback, run from the jars of Maven Central. Or a cluster of three.
//
// # What it needs
//
// Java 17 or newer and Maven. The first use copies the jars that pom.xml names into .work/kafka in the
// repository (about 45 MB, once; see package maven). Beside them, it keeps formatted storage and a class-data archive
// of the JVM (55 MB), which make a start cost half the CPU.
// Where Java or Maven are missing, tests are skipped with the reason; with the environment variable CI set
// they fail instead.
//
// # What it promises
//
//   - The broker listens on 127.0.0.1 only, on ports that it keeps over Stop, Kill and Restart, with its data.
//   - It never outlives the process that started it, however that process ends (Linux: parent death signal).
//   - auto.create.topics.enable is false: a topic exists if a test made it.
//   - Five listeners: plaintext, SASL without TLS (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 for the user [User] with the
//     password [Password], and OAUTHBEARER with tokens of [Broker.Token]), TLS without SASL (CA certificate in
//     [Broker.CAFile]), the same with a client certificate demanded ([Broker.ClientCA]), and SASL over TLS.
//
// # Use
//
// A start takes seconds, so the tests of a package share one broker:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(kafka.Main(m)) }
//
//	func TestX(t *testing.T) {
//		broker := kafka.ForTest(t)
//		...
//
// A test that stops its broker takes one of its own with [NewForTest], or a cluster with [NewClusterForTest].
package kafka
