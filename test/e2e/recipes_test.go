package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/maven"
	"github.com/deltabridge/deltabridge/test/process"
	"github.com/deltabridge/deltabridge/test/registry"
	"github.com/deltabridge/deltabridge/test/scale"
)

// recipe is a page of docs/integrations: a bridge has sent the changes in two namespaces to Kafka, as the page's example
// configures it.
type recipe struct {
	t          *testing.T
	cs         kubernetes.Interface
	namespaces []string
	dir        string // where its programs run
	page       string
	replace    *strings.Replacer // of what depends on the test
}

// TestRecipes does what the pages in docs/integrations say, and compares the results of their queries with the cluster.
func TestRecipes(t *testing.T) {
	t.Parallel()
	recipes := map[string]func(*recipe){
		"flink": (*recipe).flink, "duckdb": (*recipe).duckDB, "postgresql": (*recipe).postgreSQL,
	}
	pages, err := filepath.Glob("../../docs/integrations/*.md")
	if err != nil || len(pages) != len(recipes)+1 {
		t.Fatalf("%v: not all of %v are tried", err, pages)
	}
	if !scale.Long() {
		return // they download hundreds of megabytes
	}
	for name, run := range recipes {
		t.Run(name, func(t *testing.T) { run(newRecipe(t, name)) })
	}
	t.Run("who-changed-what", whoChangedWhat)
}

func newRecipe(t *testing.T, name string) *recipe {
	t.Helper()
	c, broker := sharedCluster(t), kafka.ForTest(t)
	r := &recipe{t: t, cs: clientset(t, c), dir: t.TempDir()}
	r.namespaces = []string{newNamespace(t, r.cs), newNamespace(t, r.cs)}
	prefix := r.namespaces[0] + "-"
	schemas := ""
	if name == "postgresql" {
		server := registry.NewForTest(t)
		server.Start(t)
		schemas = server.Address()
	}
	r.replace = strings.NewReplacer(
		"127.0.0.1:9092", broker.Addr(), "127.0.0.1:8080", schemas, "cluster: prod-eu-1\n", "", "{topic: ", "{topic: "+prefix,
		"resources: [configmaps]", "{resources: [configmaps], namespaces: ["+strings.Join(r.namespaces, ", ")+"]}",
		"objects.{", prefix+"objects.{", "objects.c", prefix+"objects.c",
		"changes.{", prefix+"changes.{", "changes.c", prefix+"changes.c",
	)
	r.page = r.read("../../docs/integrations/" + name + ".md")
	b := startBridge(t, c.Kubeconfig(), r.read("../../examples/"+name+".yaml"))
	b.waitReady()
	for n, namespace := range r.namespaces {
		if err := churn(t.Context(), r.cs, namespace, "c", 30+20*n, 3); err != nil {
			t.Fatal(err)
		}
	}
	for _, namespace := range r.namespaces {
		upTo(t, b, c, namespace)
	}
	b.stop()
	return r
}

func (r *recipe) read(file string) string {
	r.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		r.t.Fatal(err)
	}
	return r.replace.Replace(string(text))
}

// blocks returns the code blocks of the page in a language.
func (r *recipe) blocks(language string) (blocks []string) {
	for _, m := range regexp.MustCompile("(?s)```"+language+"\n(.*?)```").FindAllStringSubmatch(r.page, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

func (r *recipe) write(name, text string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// jars returns a class path.
func (r *recipe) jars(name string) string {
	r.t.Helper()
	dir, err := maven.Jars(r.t.Context(), name, []byte(r.read("testdata/integrations/"+name+".xml")))
	if err != nil {
		r.t.Fatal(err)
	}
	return filepath.Join(dir, "*")
}

// command is a program that runs in the recipe's folder.
func (r *recipe) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(r.t.Context(), name, args...)
	cmd.Dir, cmd.SysProcAttr = r.dir, process.Attr()
	cmd.Env = append(os.Environ(), "HOME="+r.dir, "FLINK_CONF_DIR="+r.dir)
	return cmd
}

// objects returns the objects of the cluster as namespace, name and resourceVersion, and their number by namespace.
func (r *recipe) objects() (objects []string, counts []int) {
	r.t.Helper()
	for _, namespace := range r.namespaces {
		list, err := r.cs.CoreV1().ConfigMaps(namespace).List(r.t.Context(), metav1.ListOptions{})
		if err != nil {
			r.t.Fatal(err)
		}
		for _, o := range list.Items {
			objects = append(objects, namespace+" "+o.Name+" "+o.ResourceVersion)
		}
		counts = append(counts, len(list.Items))
	}
	slices.Sort(objects)
	return objects, counts
}

// moduleAccess is what Flink's scripts permit to its libraries.
var moduleAccess = regexp.MustCompile(`\S+`).FindAllString(`
	--add-opens=java.base/java.lang=ALL-UNNAMED --add-opens=java.base/java.util=ALL-UNNAMED
	--add-opens=java.base/java.util.concurrent=ALL-UNNAMED --add-opens=java.base/java.net=ALL-UNNAMED
	--add-opens=java.base/java.io=ALL-UNNAMED --add-opens=java.base/java.nio=ALL-UNNAMED
	--add-opens=java.base/java.time=ALL-UNNAMED --add-opens=java.base/java.text=ALL-UNNAMED
	--add-opens=java.base/java.lang.reflect=ALL-UNNAMED --add-exports=java.base/sun.net.util=ALL-UNNAMED`, -1)

func (r *recipe) flink() {
	r.write("config.yaml", "execution: {target: local}\nparallelism: {default: 1}\n")
	blocks := r.blocks("sql")
	const each = "SELECT `key`, metadata.namespace, metadata.name, metadata.resourceVersion FROM "
	r.write("recipe.sql", strings.Join(slices.Concat(
		[]string{
			"SET 'sql-client.execution.result-mode' = 'tableau';", "SET 'table.display.max-column-width' = '200';",
		},
		blocks, []string{each + "configmaps;", each + "changes;"}), "\n"))
	args := slices.Concat(moduleAccess, []string{
		"-Xmx512m", "-cp", r.jars("flink"), "org.apache.flink.table.client.SqlClient", "embedded", "-f", "recipe.sql",
	})
	out, err := r.command("java", args...).CombinedOutput()
	tables := changelogs(string(out))
	if err != nil || len(tables) != 4 {
		r.t.Fatalf("%v: %d results:\n%s", err, len(tables), out)
	}
	objects, counts := r.objects()
	for n, rows := range tables[2:] {
		for i, row := range rows {
			key, rest, _ := strings.Cut(row, " ")
			fields := strings.Fields(rest)
			if want := "e2e//configmaps/" + fields[0] + "/" + fields[1]; key != want {
				r.t.Errorf("the key is %s, want %s", key, want)
			}
			rows[i] = rest
		}
		slices.Sort(rows)
		if diff := cmp.Diff(objects, rows); diff != "" {
			r.t.Errorf("table %d:\n%s", n, diff)
		}
	}
	for n, namespace := range r.namespaces {
		want := fmt.Sprintf("%s %d %d", namespace, counts[n], 2*counts[n])
		if !slices.Contains(tables[0], want) {
			r.t.Errorf("the present objects are %v, not %s", tables[0], want)
		}
		want = fmt.Sprintf("%s %d ", namespace, counts[n])
		if !slices.ContainsFunc(tables[1], func(row string) bool { return strings.HasPrefix(row, want) }) {
			r.t.Errorf("of the changes: %v, not %s", tables[1], want)
		}
	}
	if len(tables[0]) != 2 || len(tables[1]) != 2 {
		r.t.Errorf("there are other namespaces: %v, %v", tables[0], tables[1])
	}
}

// changelogs returns the final rows of each result that Flink's SQL client has printed: lines with an operation, which is
// one of +I, +U, -U and -D, and the columns.
func changelogs(out string) (tables [][]string) {
	for line := range strings.Lines(out) {
		cells := strings.Fields(strings.ReplaceAll(line, "|", " "))
		if len(cells) < 2 || !strings.HasPrefix(line, "|") {
			continue
		}
		row := strings.Join(cells[1:], " ")
		switch last := len(tables) - 1; cells[0] {
		case "op":
			tables = append(tables, []string{})
		case "+I", "+U":
			tables[last] = append(tables[last], row)
		default:
			at := slices.Index(tables[last], row)
			if at < 0 {
				return nil
			}
			tables[last] = slices.Delete(tables[last], at, at+1)
		}
	}
	return tables
}

// startConnect starts Kafka Connect with configurations of the process and of a connector.
func (r *recipe) startConnect(connector string, properties []string) (stop func()) {
	r.t.Helper()
	classes := r.jars("connect")
	r.write(connector+".properties", properties[1])
	r.write("connect.properties", strings.Replace(properties[0], "libs/", strings.TrimSuffix(classes, "*"), 1)+
		"listeners=http://127.0.0.1:0\n")
	connect := r.command("java", "-Xmx256m", "-cp", classes, "org.apache.kafka.connect.cli.ConnectStandalone",
		"connect.properties", connector+".properties")
	var said bytes.Buffer
	connect.Stdout, connect.Stderr = &said, &said
	if err := connect.Start(); err != nil {
		r.t.Fatal(err)
	}
	return func() {
		_ = connect.Process.Kill()
		_ = connect.Wait()
		if r.t.Failed() {
			r.t.Log(tail(said.String(), 40))
		}
	}
}

// query runs statements in DuckDB, and returns the rows of those that have rows.
func (r *recipe) query(python string, statements ...string) (results [][]map[string]any, err error) {
	cmd := r.command(python, "-m", "duckdb_cli", "-json")
	cmd.Stdin = strings.NewReader(strings.Join(statements, "\n"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var rows []map[string]any
		if err := d.Decode(&rows); err != nil {
			return nil, fmt.Errorf("%w: %s", err, out)
		}
		results = append(results, rows)
	}
	return results, nil
}

func (r *recipe) duckDB() {
	defer r.startConnect("changes", r.blocks("properties"))()
	python := pythonWith(r.t, "testdata/integrations/duckdb.txt")
	const each = "SELECT namespace || ' ' || name || ' ' || resourceversion AS row FROM configmaps ORDER BY ALL;"
	objects, counts := r.objects()
	eventually(r.t, time.Minute, func() error {
		results, err := r.query(python, append(r.blocks("sql"), each)...)
		if err != nil {
			return err
		}
		var rows []string
		for _, row := range results[len(results)-1] {
			rows = append(rows, fmt.Sprint(row["row"]))
		}
		if diff := cmp.Diff(objects, rows); diff != "" {
			return fmt.Errorf("%s\n%v", diff, results)
		}
		for n, namespace := range r.namespaces {
			want := map[string]any{"namespace": namespace, "configmaps": float64(counts[n])}
			if !slices.ContainsFunc(results[0], func(row map[string]any) bool { return cmp.Equal(row, want) }) {
				r.t.Errorf("%v lacks %v", results[0], want)
			}
		}
		if paths := results[1]; len(paths) == 0 || paths[0]["path"] == nil {
			r.t.Errorf("the paths are %v", paths)
		}
		return nil
	})
}
