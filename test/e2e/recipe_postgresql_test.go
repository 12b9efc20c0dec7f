package e2e

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/test/maven"
	"github.com/deltabridge/deltabridge/test/process"
)

// The archive of Debezium's JDBC sink. Maven cannot copy its jars, because one of them is not in Maven Central.
const (
	jdbcSink    = "io/debezium/debezium-connector-jdbc/3.6.0.Final/debezium-connector-jdbc-3.6.0.Final-plugin.tar.gz"
	jdbcSinkSum = "c23af8d416f0f801ffb0271b1a8fd9b5360ff8d66b0dd650e066bb56ecfddc05"
)

func (r *recipe) postgreSQL() {
	if runtime.GOOS+runtime.GOARCH != "linuxamd64" {
		r.t.Skip("the PostgreSQL of the test is for Linux on amd64")
	}
	r.plugins()
	database := startPostgres(r.t, r.jars("postgresql"))
	r.page = strings.ReplaceAll(r.page, "127.0.0.1:5432", database)
	defer r.startConnect("objects", r.blocks("properties"))()

	python := pythonWith(r.t, "testdata/integrations/postgresql.txt")
	script, err := filepath.Abs("testdata/integrations/postgresql.py")
	if err != nil {
		r.t.Fatal(err)
	}
	query := func(statements ...string) (results [][][]any, err error) {
		input, err := json.Marshal(statements)
		if err != nil {
			return nil, err
		}
		cmd := r.command(python, script, "postgresql://postgres@"+database+"/postgres")
		cmd.Stdin = bytes.NewReader(input)
		out, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
		for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
			var rows [][]any
			if err := d.Decode(&rows); err != nil {
				return nil, fmt.Errorf("%w: %s", err, out)
			}
			results = append(results, rows)
		}
		return results, nil
	}
	objects, counts := r.objects()
	eventually(r.t, 2*time.Minute, func() error {
		results, err := query(`SELECT namespace || ' ' || name || ' ' || resourceversion FROM configmaps`)
		if err != nil {
			return err
		}
		var rows []string
		for _, row := range results[0] {
			rows = append(rows, fmt.Sprint(row[0]))
		}
		slices.Sort(rows)
		if diff := cmp.Diff(objects, rows); diff != "" {
			return fmt.Errorf("%s", diff)
		}
		return nil
	})
	var statements []string
	for _, block := range r.blocks("sql") {
		statements = append(statements, strings.Split(strings.TrimSpace(block), ";\n")...)
	}
	results, err := query(append(statements,
		"SELECT count(*) FROM objects WHERE object->>'kind' = 'ConfigMap' AND object->'metadata'->>'uid' = uid")...)
	if err != nil || len(results) != 3 {
		r.t.Fatalf("%v: %v", results, err)
	}
	for n, namespace := range r.namespaces {
		want := []any{namespace, float64(counts[n])}
		if !slices.ContainsFunc(results[0], func(row []any) bool { return cmp.Equal(row, want) }) {
			r.t.Errorf("%v lacks %v", results[0], want)
		}
	}
	if got := results[2][0][0]; got != float64(len(objects)) {
		r.t.Errorf("%v of %d rows contain the object", got, len(objects))
	}
}

// plugins creates the folder with the plugins of Kafka Connect.
func (r *recipe) plugins() {
	r.t.Helper()
	dir := filepath.Join(r.dir, "plugins")
	archive, err := maven.File(r.t.Context(), "debezium", jdbcSink, jdbcSinkSum)
	if err == nil {
		err = os.Mkdir(dir, 0o755)
	}
	if err == nil {
		err = os.Symlink(filepath.Dir(r.jars("converter")), filepath.Join(dir, "converter"))
	}
	if err != nil {
		r.t.Fatal(err)
	}
	unpack(r.t, "-xzf", archive, dir)
}

func unpack(t *testing.T, how, archive, dir string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "tar", how, archive, "-C", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// startPostgres starts PostgreSQL from the jar in a class path, and returns its address. It does not run as root.
func startPostgres(t *testing.T, classes string) (address string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "postgresql-") //nolint:usetesting // another user cannot enter that of the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	attr := process.Attr()
	if os.Geteuid() == 0 {
		const nobody = 65534
		attr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		if err := os.Chown(dir, nobody, nobody); err != nil {
			t.Fatal(err)
		}
	}
	unpackPostgres(t, classes, dir)
	address = freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(dir, "bin", name), append(args, "-D", filepath.Join(dir, "data"))...)
		cmd.Dir, cmd.SysProcAttr = dir, attr
		return cmd
	}
	if out, err := run("initdb", "-U", "postgres", "-A", "trust", "--no-sync").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	server := run("postgres", "-p", port, "-h", "127.0.0.1", "-k", "")
	var said bytes.Buffer
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Signal(syscall.SIGINT) // a fast shutdown
		_ = server.Wait()
		if t.Failed() {
			t.Log(tail(said.String(), 20))
		}
	})
	return address
}

// unpackPostgres unpacks the archive that is in the jar.
func unpackPostgres(t *testing.T, classes, dir string) {
	t.Helper()
	jars, err := filepath.Glob(classes + ".jar")
	if err != nil || len(jars) != 1 {
		t.Fatalf("%v, %v", jars, err)
	}
	jar, err := zip.OpenReader(jars[0])
	if err != nil {
		t.Fatal(err)
	}
	defer jar.Close()
	inside, err := jar.Open("postgres-linux-x86_64.txz")
	if err != nil {
		t.Fatal(err)
	}
	defer inside.Close()
	archive := filepath.Join(t.TempDir(), "postgres.txz")
	out, err := os.Create(archive)
	if err == nil {
		_, err = io.Copy(out, inside)
	}
	if err == nil {
		err = out.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	unpack(t, "-xJf", archive, dir)
}
