package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/observe"
)

const (
	nodeIP = "10.240.0.2"
	// serviceIP is the address of the Service kubernetes in test/controlplane.
	serviceIP = "10.0.0.1"
)

// node is a cluster with one node. It runs until process 1 ends.
type node struct {
	*cluster.Cluster
	client  kubernetes.Interface
	dynamic dynamic.Interface
	kubelet *exec.Cmd

	events  []received    // of the stream, read so far
	since   int64         // revision of etcd from which on all changes must be in the stream
	objects int           // number of objects that the load created
	kept    int           // number of ConfigMaps that stay, and that the load changes as well
	written time.Duration // longest pause between two writes of the last load
}

// startNode starts a node with a running NATS, and waits until it is ready.
func startNode(t *testing.T) *node {
	t.Helper()
	start := time.Now()
	must(t, isolate())
	t.Setenv("PATH", strings.Join([]string{dir + "/bin", dir + "/debian/usr/sbin", os.Getenv("PATH")}, ":"))
	var err error
	n := &node{}
	n.Cluster, err = cluster.Start(t.Context(), cluster.Options{
		Dir: filepath.Join(dir, "state/cluster"), ControllerManager: true,
		APIServerFlags: []string{"--enable-admission-plugins=ServiceAccount", "--kubelet-preferred-address-types=InternalIP"},
	})
	must(t, err)
	t.Setenv("KUBECONFIG", n.Kubeconfig())
	t.Setenv("HOME", filepath.Join(dir, "state")) // of helm and kubectl
	n.client, err = kubernetes.NewForConfig(n.RESTConfig())
	must(t, err)
	n.dynamic, err = dynamic.NewForConfig(n.RESTConfig())
	must(t, err)
	listener, err := net.Listen("tcp", net.JoinHostPort(serviceIP, "443"))
	must(t, err)
	go forward(listener, strings.TrimPrefix(n.APIServerURL(), "https://"))

	must(t, writeConfigs(n.Kubeconfig()))
	startProgram(t, "containerd", "--config="+dir+"/state/containerd.toml")
	startProgram(t, "kube-scheduler", "--leader-elect=false", "--kubeconfig="+n.Kubeconfig(),
		"--authentication-kubeconfig="+n.Kubeconfig(), "--authorization-kubeconfig="+n.Kubeconfig())
	startProgram(t, "coredns", "-conf", dir+"/state/Corefile")
	within(t, time.Minute, func() error { return exec.CommandContext(t.Context(), "ctr", "version").Run() })
	const load = "ctr -n k8s.io images import --local --snapshotter native "
	shell(t, dir, load+"pause.tar && "+load+"nats-server.tar && "+
		"for i in dev earlier.image; do tar -C $i/layout -c . | "+load+"--base-name docker.io/library/deltabridge -; done")
	n.startKubelet(t)
	shell(t, dir, "kubectl apply -f state/manifests.yaml && kubectl wait --for=condition=Ready node/node --timeout=2m && "+
		"kubectl -n nats rollout status statefulset/nats --timeout=2m")
	t.Logf("node and NATS ready after %.1f s", time.Since(start).Seconds())
	return n
}

func (n *node) startKubelet(t *testing.T) {
	t.Helper()
	n.kubelet = startProgram(t, "kubelet", "--config="+dir+"/state/kubelet.yaml", "--kubeconfig="+n.Kubeconfig(),
		"--hostname-override=node", "--node-ip="+nodeIP)
	within(t, 2*time.Minute, func() error {
		return exec.CommandContext(t.Context(), "kubectl", "get", "node", "node").Run()
	})
}

// startProgram starts a program, which writes its log to the directory log. It ends with process 1.
func startProgram(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	must(t, os.MkdirAll(filepath.Join(dir, "log"), 0o755))
	log, err := os.OpenFile(filepath.Join(dir, "log", name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	must(t, err)
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	must(t, cmd.Start())
	return cmd
}

// isolate gives the new namespaces of process 1 their own mounts and network.
func isolate() error {
	if err := syscall.Sethostname([]byte("node")); err != nil {
		return err
	}
	script := `
mount --make-rprivate /
mount -t proc proc /proc
for d in /run /var/lib /var/log; do
  mkdir -p state$d && mount --bind state$d $d
done
# The kubelet sets these for the whole machine. It sees that they are set already.
for s in vm/overcommit_memory=1 vm/panic_on_oom=0 kernel/panic=10 kernel/panic_on_oops=1; do
  f=state/sysctl/${s%=*}
  mkdir -p ${f%/*} && echo ${s#*=} > $f && mount --bind $f /proc/sys/${s%=*}
done
mkdir -p /var/lib/volumes/{0,1,2,3}
# No other name server can be reached.
f=$(readlink -m /etc/resolv.conf)
mkdir -p ${f%/*} && { test -e $f || touch $f; }
echo "nameserver ` + nodeIP + `" > state/resolv.conf && mount --bind state/resolv.conf $f
ip link set lo up
ip address add ` + serviceIP + `/32 dev lo
# Nothing is at the other end of the node's interface.
ip link add eth0 type veth peer name nowhere
ip link set nowhere up
ip link set eth0 up
ip address add ` + nodeIP + `/24 dev eth0
ip route add default dev eth0
`
	return run(dir, script)
}

// forward forwards connections to an address: it is the Service kubernetes.
func forward(listener net.Listener, address string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := net.Dial("tcp", address)
			if err != nil {
				return // the client notices
			}
			go func() {
				defer to.Close()
				_, _ = io.Copy(to, from) // both ends notice
			}()
			_, _ = io.Copy(from, to)
		}()
	}
}

// writeConfigs writes the configurations of the node's programs, and the objects of the cluster, to the directory state.
func writeConfigs(kubeconfig string) error {
	files := map[string]string{
		"containerd.toml": `version = 3
[plugins."io.containerd.internal.v1.opt"]
  path = "/var/lib/containerd/opt"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "native"
  pinned_images = {sandbox = "` + imageOf("pause") + `"}
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true # root may lack the capability to lower it
  cni = {bin_dirs = ["` + dir + `/debian/usr/lib/cni"], conf_dir = "` + dir + `/state/cni"}
`,
		"cni/pods.conflist": `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods", "isGateway": true, "ipam":
    {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}`,
		"kubelet.yaml": `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /` + os.Getenv("NODE_CGROUP") + `
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
clusterDNS: [` + nodeIP + `]
clusterDomain: cluster.local
volumePluginDir: /var/lib/kubelet/volumeplugins
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
evictionHard: {memory.available: 0%, nodefs.available: 0%, nodefs.inodesFree: 0%, imagefs.available: 0%, imagefs.inodesFree: 0%}
imageGCHighThresholdPercent: 100
`,
		"Corefile": `.:53 {
  errors
  kubernetes cluster.local {
    kubeconfig ` + kubeconfig + `
  }
  template ANY ANY {
    rcode NXDOMAIN
  }
}
`,
		"manifests.yaml": `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata:
  name: local
  annotations: {storageclass.kubernetes.io/is-default-class: "true"}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: Namespace
metadata: {name: nats}
---
apiVersion: v1
kind: Service
metadata: {name: nats, namespace: nats}
spec: {clusterIP: None, selector: {app: nats}, ports: [{port: 4222}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: nats, namespace: nats}
spec:
  serviceName: nats
  selector: {matchLabels: {app: nats}}
  template:
    metadata: {labels: {app: nats}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
        - name: nats
          image: ` + imageOf("nats-server") + `
          args: [-js, -sd, /data, -m, "8222"]
          readinessProbe: {tcpSocket: {port: 4222}, periodSeconds: 1}
          volumeMounts: [{name: data, mountPath: /data}]
      volumes: [{name: data, hostPath: {path: /var/lib/nats, type: DirectoryOrCreate}}]
`,
	}
	for i := range 4 {
		files["manifests.yaml"] += fmt.Sprintf(`---
apiVersion: v1
kind: PersistentVolume
metadata: {name: local-%[1]d}
spec:
  storageClassName: local
  capacity: {storage: 10Gi}
  accessModes: [ReadWriteOnce]
  local: {path: /var/lib/volumes/%[1]d}
  nodeAffinity:
    required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node]}]}]}
`, i)
	}
	var errs []error
	for name, text := range files {
		path := filepath.Join(dir, "state", name)
		errs = append(errs, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
	}
	return errors.Join(errs...)
}

// shell runs a command line and returns its output. The test fails if the command does.
func shell(t *testing.T, in, command string) string {
	t.Helper()
	out, err := tryShell(t, in, command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

// tryShell is shell for commands that may fail.
func tryShell(t *testing.T, in, command string) (string, error) {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", command)
	cmd.Dir = in
	out, err := cmd.CombinedOutput()
	t.Logf("%5.1f s  %s", time.Since(start).Seconds(), strings.TrimSpace(command))
	return string(out), err
}

func must(t *testing.T, err error) {
	t.Helper()
	observe.Must(t, err)
}

func within(t *testing.T, limit time.Duration, check func() error) {
	t.Helper()
	observe.EventuallyWithin(t, limit, check)
}
