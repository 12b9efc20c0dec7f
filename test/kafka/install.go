package kafka

import (
	"context"
	_ "embed"
	"os"
	"regexp"

	"github.com/deltabridge/deltabridge/test/maven"
)

//go:embed pom.xml
var pom []byte

// versionVariable names an environment variable with another version of Kafka than that of pom.xml: test/matrix.
const versionVariable = "DELTABRIDGE_TEST_KAFKA"

var versionInPOM = regexp.MustCompile(`(<artifactId>kafka_2\.13</artifactId>\s*<version>)[^<]+`)

// install returns the folder that holds the broker's jars, and fills it if needed.
func install(ctx context.Context) (string, error) {
	project := pom
	if version := os.Getenv(versionVariable); version != "" {
		project = versionInPOM.ReplaceAll(pom, []byte("${1}"+version))
	}
	return maven.Jars(ctx, "kafka", project)
}
