package kafka

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	return maven.Jars(ctx, workFolder, project)
}

// workFolder is where in .work the jars are, and what is made of them.
const workFolder = "kafka"

// formatted returns a folder with the formatted storage of a node, which it makes once: that takes a JVM.
func formatted(ctx context.Context, jars string, node int) (string, error) {
	file := fmt.Sprintf("%s-node%d", filepath.Base(jars), node)
	return maven.Once(ctx, workFolder, file, func(base, path string) error {
		return withTemplate(base, jars, node, func(b *Broker) error {
			err := b.run(ctx, "kafka.tools.StorageTool", "format", "--cluster-id", clusterID,
				"--config", filepath.Join(b.dir, "server.properties"),
				"--add-scram", fmt.Sprintf("SCRAM-SHA-256=[name=%s,password=%s]", User, Password),
				"--add-scram", fmt.Sprintf("SCRAM-SHA-512=[name=%s,password=%s]", User, Password))
			if err != nil {
				return err
			}
			return os.Rename(b.dataDir(), path)
		})
	})
}

// classArchive returns the class-data archive of a broker, which it makes once: with it, a start takes less CPU.
func classArchive(ctx context.Context, jars string) (string, error) {
	data, err := formatted(ctx, jars, 1)
	if err != nil {
		return "", err
	}
	return maven.Once(ctx, workFolder, filepath.Base(jars)+".jsa", func(base, path string) error {
		return withTemplate(base, jars, 1, func(b *Broker) error {
			if err := os.CopyFS(b.dataDir(), os.DirFS(data)); err != nil {
				return err
			}
			archive := filepath.Join(b.dir, "archive")
			if err := b.launch("-XX:ArchiveClassesAtExit=" + archive); err != nil {
				return err
			}
			if err := errors.Join(b.awaitReady(ctx), b.Stop()); err != nil {
				return err
			}
			return os.Rename(archive, path)
		})
	})
}

// withTemplate calls do with a broker of a cluster of its own that has its configuration but no storage. Its folder is
// removed afterwards.
func withTemplate(base, jars string, node int, do func(b *Broker) error) error {
	dir, err := os.MkdirTemp(base, "tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	b := &Broker{dir: dir, jars: jars, node: node}
	if err := choosePorts([]*Broker{b}); err != nil {
		return err
	}
	b.voters = []string{b.voter()}
	if err := b.writeFiles(); err != nil {
		return err
	}
	return do(b)
}
