// Package maven gives tests programs that Maven Central has: Apache Kafka, Apache Flink, Apicurio Registry.
//
// [Jars] copies the jars that a pom.xml names into a folder below .work in the repository. It does so once: the name of
// the folder contains a hash of the pom.xml, and a lock file keeps test packages that run at once from doing it twice.
// Jars requires Java and Maven ([ErrNoTools]). [File] does the same for a single file, without Maven.
package maven
