// Command matrix runs tests against older versions of the servers that the bridge works with: those in the table of
// docs/support.md. If all tests of a version pass, it writes their number and the date into the table.
//
// The first run builds or downloads the servers into .work, which takes minutes for each Kubernetes version.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/deltabridge/deltabridge/test/cluster"
)

const (
	page       = "docs/support.md"
	kubernetes = "DELTABRIDGE_TEST_KUBERNETES" // read by package cluster
)

// row is a row of the table: server, version, number of tests, date.
var row = regexp.MustCompile(`(?m)^\| ([\w -]+) \| (\d+\.\d+\.\d+) \| ([\d-]+) \| [^|]+ \|$`)

// server is a kind of server.
type server struct {
	variable string // the environment variable that gives the tests another version
	prepare  func(ctx context.Context, version string) (value string, err error)
	tests    map[string][]string // by package; all tests of a package that has no list
}

var servers = map[string]server{
	"Kubernetes API server": {
		variable: kubernetes,
		prepare: func(ctx context.Context, version string) (string, error) {
			if err := os.Setenv(kubernetes, version); err != nil {
				return "", err
			}
			_, err := cluster.Build(ctx, os.Stderr, cluster.Options{})
			return version, err
		},
		tests: map[string][]string{
			"./pkg/informer": {
				// watch-lists, lists, bookmarks, selectors
				"TestHandlersSeeEveryRevision", "TestObjectsOfAListArePassedOn", "TestSelectors", "TestShutdownWhileARequestHangs",
			},
			"./pkg/informer/fleet": {
				// discovery, custom resources, permissions
				"TestDefinitionComesAndGoes", "TestNamespacesAndForbiddenResources", "TestAPIServerIsAway",
			},
			"./test/e2e": {
				// the whole bridge: restarts, deletions that it misses, and a history that is compacted or lost
				"TestEveryRevisionArrives", "TestKilledAtAnyMoment", "TestAPIServerRestart", "TestDownForLongerThanTheHistory",
				"TestWaitingEventsOutliveTheHistory", "TestARestoredEtcd",
			},
		},
	},
	"nats-server": {
		variable: "DELTABRIDGE_TEST_NATS_SERVER",
		prepare:  installNATS,
		tests: map[string][]string{"./pkg/sinks/nats": {
			"TestConformance", "TestConformanceStructured",
			"TestCreatedStream", "TestMissingStream", "TestExistingStreamIsChecked", "TestStreamDeletedWhileRunning",
			"TestARecreatedStreamIsAnotherDestination", "TestFullStreamPushesBack", "TestRepetitionsAreDropped",
			"TestOversizeForStreamAndProtocol", "TestOversizeModes", "TestDeadLetterSubject", "TestPayloadsAgainAndAway",
			// streams with the latest state; deletions in them expire
			"TestMirror", "TestMirrorLosesTTLs", "TestExistingMirror", "TestRestatement", "TestBucket",
			// what an earlier process has written is read back up to the end, which a refused message shows
			"TestNothingTwice", "TestOthersWriteToTheStream", "TestPositions", "TestDoubt", "TestDoubtOutlastsTheWindow",
			"TestNothingCanBeReadBack", "TestConsumersRemoveMessages", "TestReadingBackIsInterrupted", "TestEndOfTheStream",
			"TestKilledBeforeReplication", "TestCreatedAgainUnderLoad",
			// refusals because of the expected sequence of a subject
			"TestMirrorZombie", "TestMirrorTwoProcesses", "TestMirrorNothingTwice", "TestMirrorAfterARemoval",
			"TestMirrorAfterARestoredEtcd", "TestMirrorInDoubt", "TestMirrorFilledStream", "TestMirrorWithoutPermissions",
			"TestMirrorOthersKeepWriting", "TestMirrorIfFound", "TestMirrorZombieWithAnotherFilter", "TestStepDowns",
		}, "./pkg/sinks/nats/natslog": {
			// refusals because of the expected sequence of a stream; its end after purges
			"TestCluster", "TestConformance", "TestStaleWriter", "TestTruncate", "TestRemovedRecords", "TestRecreatedStream",
			"TestLostAcknowledgements", "TestRecordSizes", "TestLowerLimit", "TestReadIsInterrupted", "TestReadEndsEarly",
			"TestCreatedStream",
		}},
	},
	"Apache Kafka": {
		variable: "DELTABRIDGE_TEST_KAFKA",
		prepare:  func(_ context.Context, version string) (string, error) { return version, nil },
		tests: map[string][]string{
			"./pkg/sinks/kafka/...": nil,
			// fences on three brokers, and after changes of the topic
			"./test/e2e": {"TestReplicated", "TestNothingTwiceAfterAChange"},
		},
	},
}

func main() {
	only := flag.String("only", "", "test only the rows whose server and version match the regular expression")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only string) (failed error) {
	selected, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		name, version := m[1], m[2]
		if !selected.MatchString(name + " " + version) {
			continue
		}
		start := time.Now()
		passed, err := test(ctx, name, version)
		fmt.Printf("%s %s: %d tests passed in %s\n", name, version, passed, time.Since(start).Round(time.Second))
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s %s: %w", name, version, err))
			continue
		}
		now := fmt.Sprintf("| %s | %s | %d | %s |", name, version, passed, start.Format(time.DateOnly))
		if err := replace(m[0], now); err != nil {
			return err
		}
	}
	return failed
}

// replace replaces a row of the page. The page may have changed since the tests began.
func replace(row, by string) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	return os.WriteFile(page, bytes.Replace(text, []byte(row), []byte(by), 1), 0o644)
}

// test runs the tests of one version. It returns how many passed. It is an error if one did not, or if one is missing.
func test(ctx context.Context, name, version string) (passed int, err error) {
	s, ok := servers[name]
	if !ok {
		return 0, errors.New("there are no tests for this server")
	}
	value, err := s.prepare(ctx, version)
	if err != nil {
		return 0, err
	}
	var output []byte
	for pkg, tests := range s.tests {
		pattern := "^(" + strings.Join(tests, "|") + ")$"
		if len(tests) == 0 {
			pattern = "."
		}
		args := []string{"test", "-json", "-count=1", "-p=1", "-timeout=60m", "-run=" + pattern, pkg}
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), s.variable+"="+value)
		cmd.Stderr = os.Stderr
		text, failed := cmd.Output()
		output, err = append(output, text...), errors.Join(err, failed)
	}
	log := filepath.Join(".work", "matrix-"+strings.ReplaceAll(name, " ", "-")+"-"+version+".json")
	if writeErr := os.WriteFile(log, output, 0o644); writeErr != nil {
		return 0, errors.Join(err, writeErr)
	}
	if err != nil {
		err = fmt.Errorf("%w; the output is in %s", err, log)
	}
	results := outcomes(output)
	for test, outcome := range results {
		if outcome == "pass" {
			passed++
		} else {
			err = errors.Join(err, fmt.Errorf("%s: %s", test, outcome))
		}
	}
	for _, test := range slices.Concat(slices.Collect(maps.Values(s.tests))...) {
		// go test does not report names in -run that match nothing
		isTest := func(name string) bool { return strings.HasSuffix(name, "."+test) }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(results)), isTest) {
			err = errors.Join(err, fmt.Errorf("%s: no such test", test))
		}
	}
	return passed, err
}

// outcomes returns what the output of "go test -json" says of each test (package.name): pass, fail or skip.
// Subtests are left out.
func outcomes(output []byte) map[string]string {
	results := map[string]string{}
	for line := range bytes.Lines(output) {
		var event struct{ Action, Package, Test string }
		if json.Unmarshal(line, &event) != nil || event.Test == "" || strings.Contains(event.Test, "/") {
			continue
		}
		if slices.Contains([]string{"pass", "fail", "skip"}, event.Action) {
			results[event.Package+"."+event.Test] = event.Action
		}
	}
	return results
}

// installNATS returns the path of the program.
func installNATS(ctx context.Context, version string) (string, error) {
	dir, err := filepath.Abs(filepath.Join(".work", "nats-server-"+version))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "install", "-buildvcs=false", "github.com/nats-io/nats-server/v2@v"+version)
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	return filepath.Join(dir, "nats-server"), cmd.Run()
}
