package main

import (
	"cmp"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// facts describe the machine, the versions and the time of the results.
func (b *bench) facts() string {
	dependencies := versions(b.bridgeBinary)
	var text strings.Builder
	text.WriteString("# Results of `make bench`\n\n")
	for _, f := range [][2]string{
		{"date", time.Now().UTC().Format("2006-01-02 15:04 MST")},
		{"runs", fmt.Sprintf("%d of each program", b.runs)},
		{"commit", command("git", "describe", "--always", "--dirty", "--tags")},
		{"machine", fmt.Sprintf("%d cores (%s), %s", runtime.NumCPU(), fromFile("/proc/cpuinfo", `model name\s*: (.*)`), memory())},
		{"kernel", command("uname", "-sr")},
		{"Go", strings.TrimPrefix(runtime.Version(), "go")},
		{"client-go", dependencies["k8s.io/client-go"]},
		{"nats-server", server.VERSION},
		{"nats.go", dependencies["github.com/nats-io/nats.go"]},
		{"kafka-go", dependencies["github.com/segmentio/kafka-go"]},
		{"Kafka", fromFile("test/kafka/pom.xml", `>kafka_[\d.]+</artifactId>\s*<version>([^<]+)`)},
		{"API server", fromFile("test/controlplane/go.mod", `k8s.io/kubernetes (\S+)`)},
	} {
		fmt.Fprintf(&text, "- %s: %s\n", f[0], f[1])
	}
	return text.String() + "\n"
}

// versions returns the versions of the modules in a binary.
func versions(binary string) map[string]string {
	all := map[string]string{}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return all
	}
	for _, m := range info.Deps {
		all[m.Path] = m.Version
	}
	return all
}

const unknown = "unknown"

func command(name string, args ...string) string {
	text, err := exec.Command(name, args...).Output()
	if err != nil {
		return unknown
	}
	return strings.TrimSpace(string(text))
}

// fromFile returns the match of a pattern's group in a file.
func fromFile(path, pattern string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return unknown
	}
	return cmp.Or(submatch(pattern, string(text)), unknown)
}

func memory() string {
	kilobytes := 0
	if _, err := fmt.Sscan(fromFile("/proc/meminfo", `MemTotal:\s*(\d+)`), &kilobytes); err != nil {
		return unknown
	}
	return fmt.Sprintf("%.0f GB", float64(kilobytes)/1e6)
}
