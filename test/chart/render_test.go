package chart

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/deltabridge/deltabridge/internal/config"
)

const (
	// minimal is a file with the smallest values that the chart accepts.
	minimal = "testdata/minimal.yaml"
	// withLog is a file with values that add a state log to the minimal ones.
	withLog = "testdata/log.yaml"
)

// examples are the arguments for the example values by name; "default" are the defaults of the chart.
func examples(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob(chartDir + "/examples/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("examples %v: %v", files, err)
	}
	all := map[string][]string{"default": {"--values", minimal}}
	for _, file := range files {
		all[strings.TrimSuffix(filepath.Base(file), ".yaml")] = []string{"--values", file}
	}
	return all
}

// template renders the chart as the release "deltabridge" in the namespace "streams". The arguments add to the minimal
// values.
func template(t *testing.T, args ...string) string {
	t.Helper()
	return helm(
		t,
		append([]string{"template", "deltabridge", chartDir, "--namespace", "streams", "--values", minimal}, args...)...)
}

// Each of the example values, and the defaults, render as before, and helm finds nothing to say about them.
func TestRenderings(t *testing.T) {
	for name, values := range examples(t) {
		t.Run(name, func(t *testing.T) {
			got := withoutDashboard(t, template(t, values...))
			file := filepath.Join("testdata", name+".golden.yaml")
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("not as in %s: look, and run make chart (-want +got):\n%s", file, diff)
			}
			if out, _, err := command(
				t,
				tools.helm,
				append([]string{"lint", "--strict", chartDir}, values...)...); err != nil ||
				strings.Contains(out, "[WARNING]") {
				t.Errorf("helm lint: %v\n%s", err, out)
			}
		})
	}
}

// withoutDashboard puts a word in place of the dashboard, which is a file of its own. The chart only replaces the branch
// in its links by the version.
func withoutDashboard(t *testing.T, rendering string) string {
	t.Helper()
	text, err := os.ReadFile(chartDir + "/files/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	versioned := strings.ReplaceAll(string(text), "/blob/main/", "/blob/v"+chartVersion(t)+"/")
	indented := "    " + strings.ReplaceAll(strings.TrimSuffix(versioned, "\n"), "\n", "\n    ")
	return strings.Replace(rendering, indented, "    files/dashboard.json", 1)
}

// What reaches the bridge is a configuration that it accepts, with the credentials where the chart mounts them. Outside
// of the Pod, it is accepted without them.
func TestConfigurations(t *testing.T) {
	for name, values := range examples(t) {
		t.Run(name, func(t *testing.T) {
			out := template(t, values...)
			etc := t.TempDir()
			config := renderedConfig(t, out)
			text := strings.NewReplacer("/etc/deltabridge/", etc+"/", "/var/run/", etc+"/var/run/").Replace(config)
			mountCredentials(t, out, etc)
			checked, _, err := command(t, tools.bridge, "check", "--config", writeFile(t, "bridge.yaml", text))
			if err != nil || strings.Contains(checked, "no such file") {
				t.Errorf("%v\n%s%s", err, checked, text)
			}
			checked, _, err = command(t, tools.bridge, "check", "--config", writeFile(t, "bridge.yaml", config))
			if err != nil || strings.Contains(checked, "no such file") != strings.Contains(config, "File: /etc/deltabridge/") {
				t.Errorf("outside of the Pod: %v\n%s%s", err, checked, config)
			}
		})
	}
}

// renderedConfig is the configuration in a rendering.
func renderedConfig(t *testing.T, rendering string) string {
	t.Helper()
	for _, object := range objects(t, rendering) {
		if object.Kind == "ConfigMap" {
			var c corev1.ConfigMap
			object.decode(t, &c)
			if text, ok := c.Data["bridge.yaml"]; ok {
				return text
			}
		}
	}
	t.Fatal("there is no ConfigMap with bridge.yaml")
	return ""
}

// secretKeys are the keys of the Secrets that the example values name.
func secretKeys() map[string][]string {
	return map[string][]string{
		"nats-bridge":           {"bridge.creds", "password", "ca.crt"},
		"kafka-deltabridge":     {"password", "ca.crt"},
		"deltabridge-redaction": {"key"},
		"deltabridge-audit":     {"tls.crt", "tls.key", "ca.crt"},
	}
}

// mountCredentials puts the files of Secrets, which the Pod has below /etc/deltabridge, and projected tokens below etc.
func mountCredentials(t *testing.T, rendering, etc string) {
	t.Helper()
	spec := bridgePod(t, rendering).Spec
	for _, mount := range spec.Containers[0].VolumeMounts {
		i := slices.IndexFunc(spec.Volumes, func(v corev1.Volume) bool { return v.Name == mount.Name })
		names := mountedFiles(spec.Volumes, i)
		if names == nil {
			continue
		}
		dir := filepath.Join(etc, strings.TrimPrefix(mount.MountPath, "/etc/deltabridge"))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			content := "a secret that is long enough for a key"
			if strings.HasSuffix(name, ".crt") {
				content = certificate(t)
			}
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// mountedFiles returns the names of the files in volume i; nil if it is neither a Secret nor a projected token.
func mountedFiles(volumes []corev1.Volume, i int) (names []string) {
	switch {
	case i < 0:
	case volumes[i].Projected != nil:
		for _, source := range volumes[i].Projected.Sources {
			if source.ServiceAccountToken != nil {
				names = append(names, source.ServiceAccountToken.Path)
			}
		}
	case volumes[i].Secret != nil:
		for _, item := range volumes[i].Secret.Items {
			names = append(names, item.Path)
		}
		if names == nil {
			names = secretKeys()[volumes[i].Secret.SecretName]
		}
	}
	return names
}

// The chart renders no Secret, and refuses a password in the configuration.
func TestCredentialsAreFiles(t *testing.T) {
	config := template(t, "--values", chartDir+"/examples/namespaced.yaml")
	for _, object := range objects(t, config) {
		if object.Kind == "Secret" {
			t.Errorf("the chart renders the Secret %s", object.Name)
		}
	}
	_, _, err := command(t, tools.helm, "template", "x", chartDir, "--set", "config.sinks[0].nats.password=geheim")
	if err == nil || !strings.Contains(err.Error(), "password") {
		t.Errorf("a password in the configuration: %v", err)
	}
}

// A changed configuration replaces the Pod only if a key has changed that cannot change while the bridge runs. With
// reloadConfig: false, it does in any case.
func TestChecksum(t *testing.T) {
	of := func(set string) string {
		return statefulSet(t, template(t, "--set", set)).Spec.Template.Annotations["checksum/config"]
	}
	replaces := map[string]string{
		"cluster": "config.cluster=other", "kubeconfig": "config.kubeconfig=/a", "state.path": "config.state.path=/a",
		"state.log":   "config.redactionKeyFile=/a,config.state.log.nats.url=nats://a,config.state.log.nats.stream.name=A",
		"election":    "config.election.leaseDuration=20s",
		"audit":       "config.audit.listen=:8444,config.audit.tokenFile=/a,config.sinks[0].events=audit",
		"sinks":       "", // with a state log: see below
		"http.listen": "config.http.listen=:8081", "http.ui": "config.http.ui=true", "log.format": "config.log.format=text",
	}
	for key := range config.FixedValues(config.Default()) {
		if _, changed := replaces[key]; !changed {
			t.Errorf("%s cannot change while the bridge runs, but this test does not change it", key)
		}
	}
	loaded := []string{
		"config.log.level=debug", "config.sinks[0].payload=metadata",
		"config.watch[0].resources[0]=pods", "config.http.tokenFile=/a", "config.redactionKeyFile=/a",
	}
	first, always := of("enabled=true"), of("reloadConfig=false")
	if again := of("monitor.enabled=true"); first == "" || always == first || again != first {
		t.Errorf("%q, %q with reloadConfig: false, %q with another value", first, always, again)
	}
	for _, set := range replaces {
		if set != "" && of(set) == first {
			t.Errorf("%s does not replace the Pod", set)
		}
	}
	for _, set := range loaded {
		if of(set) != first {
			t.Errorf("%s replaces the Pod", set)
		}
		if of("reloadConfig=false,"+set) == always {
			t.Errorf("%s does not replace the Pod with reloadConfig: false", set)
		}
	}
}

// With a state log, the Pod is also replaced if a sink for audit events has changed.
func TestChecksumOfReplicas(t *testing.T) {
	of := func(set string) string {
		return statefulSet(t, template(t, "--values", withLog, "--set", "config.sinks[1].name=audit,"+
			"config.sinks[1].events=audit,config.sinks[1].kafka.topic=a,config.sinks[1].kafka.brokers[0]=k:9092,"+withAudit+set)).
			Spec.Template.Annotations["checksum/config"]
	}
	if of("") != of(",config.sinks[0].payload=metadata") || of("") == of(",config.sinks[1].kafka.topic=b") {
		t.Error("a change of another sink replaces the Pod, or one of this sink does not")
	}
}

// The soft limit of the Go runtime follows the memory limit, and the bridge runs on one processor, unless `env` says
// otherwise. No variable is set twice.
func TestGoRuntime(t *testing.T) {
	for _, tt := range []struct{ set, memory, processors string }{
		{"resources.limits.memory=1Gi", "966367641", "1"},
		{"resources.limits.memory=1.5Gi", "1449551462", "1"},
		{"resources.limits.memory=500M", "450000000", "1"},
		{"resources.limits.memory=1073741824", "966367641", "1"},
		{"resources.limits.memory=null", "", "1"},
		{"env[0].name=GOMAXPROCS,env[0].value=four", "966367641", "four"},
		{"env[0].name=GOMEMLIMIT,env[0].value=off", "off", "1"},
	} {
		sts := statefulSet(t, template(t, "--set", tt.set))
		got := environment(sts)
		if got["GOMEMLIMIT"] != tt.memory || got["GOMAXPROCS"] != tt.processors ||
			len(got) != len(sts.Spec.Template.Spec.Containers[0].Env) {
			t.Errorf("%s: %v", tt.set, sts.Spec.Template.Spec.Containers[0].Env)
		}
	}
}

func environment(sts *appsv1.StatefulSet) map[string]string {
	env := map[string]string{}
	for _, e := range sts.Spec.Template.Spec.Containers[0].Env {
		env[e.Name] = e.Value
	}
	return env
}

// The Pod has time for the shutdown of the bridge, and 15 seconds more.
func TestTerminationGracePeriod(t *testing.T) {
	for timeout, want := range map[string]int64{"30s": 45, "1m30s": 105, "1h": 3615, "1500ms": 17, "0s": 15} {
		if got := *statefulSet(t, template(t, "--set", "config.shutdownTimeout="+timeout)).Spec.Template.Spec.TerminationGracePeriodSeconds; got != want {
			t.Errorf("shutdownTimeout %s: %d seconds, want %d", timeout, got, want)
		}
	}
}

// The notes show how to see events, and what the chosen values cost.
func TestNotes(t *testing.T) {
	for _, tt := range []struct {
		values []string
		want   []string
		not    []string
	}{
		{
			nil,
			[]string{
				"exec statefulset/deltabridge -- bridge doctor", "exec -it statefulset/deltabridge -- bridge tail --sink nats",
				"helm test deltabridge -n default --logs", "except Secrets", "sink nats does not require TLS",
			},
			[]string{"too small", "bridge status"},
		},
		{
			[]string{"--set-json", `config.sinks=[{"name": "a", "stdout": {}}]`},
			[]string{"logs -f statefulset/deltabridge -c bridge\n"},
			[]string{"bridge tail", "TLS"},
		},
		{
			examples(t)["replicas"],
			[]string{
				"rollout status deployment/deltabridge", "exec deployment/deltabridge -- bridge doctor",
				"kubectl -n default exec deployment/deltabridge -- bridge status",
			},
			[]string{"TLS"},
		},
		{
			[]string{"--values", withLog},
			[]string{"rollout status statefulset/deltabridge", "state.log does not require TLS", "-- bridge status"},
			[]string{"sink state.log"},
		},
		{examples(t)["namespaced"], []string{"bridge tail --sink audit"}, []string{"granted in the whole cluster", "TLS"}},
		{examples(t)["everything"], []string{"team-*", "granted in the whole cluster"}, []string{"TLS"}},
		{[]string{"--set", "persistence.size=1Gi"}, []string{"the volume is too small"}, nil},
		{
			examples(t)["audit"],
			[]string{
				"tls-server-name deltabridge-audit.default.svc:\n\n  https://10.96.0.50:8443\n", "bridge tail --sink audit",
			},
			[]string{"too small"},
		},
		{
			append(examples(t)["audit"], "--set", "service.auditClusterIP=,config.audit.listen=:9443,persistence.size=22Gi"),
			[]string{
				"kubectl -n default get service deltabridge-audit -o 'jsonpath=https://{.spec.clusterIP}:9443'\n\nChange",
				"The spills of the sinks and the audit journal can take 23622320128 bytes",
			},
			nil,
		},
		{
			append(examples(t)["audit"], "--set", "config.audit.listen=127.0.0.1:8443"),
			[]string{"there is no Service for audit events"},
			[]string{"tls-server-name"},
		},
		{[]string{"--set", "config.http.listen=127.0.0.1:8080"}, []string{"Probes and Prometheus cannot reach"}, nil},
		{[]string{"--set", "namespaceOverride=other"}, []string{"kubectl -n other exec", "helm test deltabridge -n default"}, nil},
		{[]string{"--set", "rbac.create=false"}, []string{"bridge rbac"}, nil},
	} {
		_, notes, _ := strings.Cut(
			helm(
				t,
				append([]string{"install", "deltabridge", chartDir, "--dry-run=client", "--values", minimal}, tt.values...)...),
			"\nNOTES:",
		)
		for _, want := range tt.want {
			if !strings.Contains(notes, want) {
				t.Errorf("%v: no %q in\n%s", tt.values, want, notes)
			}
		}
		for _, not := range tt.not {
			if strings.Contains(notes, not) {
				t.Errorf("%v: %q in\n%s", tt.values, not, notes)
			}
		}
	}
}

// What the chart cannot do results in an error that says what to change.
func TestRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"config.state.path=state":                            "absolute path",
		"config.watch[0].resources[0]=pod*":                  "RBAC has no wildcards within a name",
		"config.watch[0].resources[0]=*.*.k8s.io":            "RBAC has no wildcards within a name",
		"config.sinks[0].buffer.spill.maxBytes=1Xi":          "maxBytes",
		"serviceAccount.create=false":                        "serviceAccount.name is required",
		"config.http.listen=:${PORT}":                        "config.http contains an environment variable",
		"config.watch[0].resources[0]=${R}":                  "config.watch contains an environment variable",
		"config.state.path=/${DIR}":                          "config.state.path contains an environment variable",
		"config.audit.listen=:${PORT}":                       "config.audit.listen contains an environment variable",
		"config.sinks[0].enrich.owner=${OWNER}":              "enrich contains an environment variable",
		"rbac.cluster=false,rbac.extraRules[0].verbs[0]=get": "rbac.extraRules are part of the ClusterRole",
		"prometheusRule.alerts.DeltabridgeLagg.for=1h":       "the alerts are DeltabridgeDown, ",
		"prometheusRule.alerts.DeltabridgeDown.threshold=1":  "this alert has no threshold",
	} {
		args := []string{
			"template", "x", chartDir, "--values", minimal,
			"--set", "prometheusRule.enabled=true,config.watch[0].resources[0]=pods,config.watch[0].namespaces[0]=a",
			"--set", values,
		}
		if _, _, err := command(t, tools.helm, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", values, err, want)
		}
	}
	for values, want := range map[string]string{
		"enabled=true":     "config.cluster, config.sinks: no value is set",
		"config.cluster=a": "config.sinks: no value is set",
	} {
		_, _, err := command(t, tools.helm, "template", "x", chartDir, "--set", values)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", values, err, want)
		}
	}
}

// object is a rendered object.
type object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	text string
}

func objects(t *testing.T, rendering string) []object {
	t.Helper()
	var all []object
	for text := range strings.SplitSeq("\n"+rendering, "\n---\n") {
		o := object{text: text}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		if o.Kind != "" {
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		t.Fatal("nothing was rendered")
	}
	return all
}

// decode reads the object into its type. A field that the type does not have fails the test.
func (o *object) decode(t *testing.T, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(o.text), into); err != nil {
		t.Fatalf("%s %s: %v", o.Kind, o.Name, err)
	}
}
