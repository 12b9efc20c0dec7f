package checkpoint

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
)

const testUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"

func testSource(name string) ledger.Source {
	return ledger.Source{Name: name, Resource: schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: name}}
}

// open opens a store of the test cluster in a folder, and closes it with the test.
func open(t testing.TB, folder string) *Store {
	t.Helper()
	s, err := Open(Options{Path: folder, ClusterName: "test", Logger: slog.New(slog.DiscardHandler), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// begin opens a store and says which cluster it is of.
func begin(t testing.TB, folder string) *Store {
	t.Helper()
	s := open(t, folder)
	if err := s.BeginCluster(testUID); err != nil {
		t.Fatal(err)
	}
	return s
}

func newObject(t testing.TB, raw string) *object.Object {
	t.Helper()
	o, err := object.New([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// noise is n bytes that mean nothing, the same each time.
func noise(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b) // never fails
	return b
}

// small is an object of about 150 bytes.
func small(t testing.TB, namespace, name, version string) *object.Object {
	t.Helper()
	return newObject(
		t,
		fmt.Sprintf(
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q,"uid":"u-%s","resourceVersion":%q},"data":{"n":%q}}`,
			name,
			namespace,
			name,
			version,
			version,
		),
	)
}

// pod is an object of 2.6 KB that looks like what there is in a cluster.
func pod(t testing.TB, i, version int) *object.Object {
	t.Helper()
	random := rand.New(rand.NewPCG(uint64(i), 1))
	hex := func(n int) string {
		b := make([]byte, n)
		for i := range b {
			b[i] = "0123456789abcdef"[random.IntN(16)]
		}
		return string(b)
	}
	uid := hex(8) + "-" + hex(4) + "-" + hex(4) + "-" + hex(4) + "-" + hex(12)
	replicaSet := "web-frontend-" + hex(10)
	return newObject(t, fmt.Sprintf(podJSON, replicaSet, i, replicaSet, hex(10), replicaSet, hex(8)+"-"+hex(4), uid,
		version, hex(5), hex(5), random.IntN(50), hex(64), hex(64), random.IntN(255), random.IntN(255)))
}

const podJSON = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"%s-%06d","generateName":"%s-","namespace":"team-blue","labels":{"app":"web-frontend","app.kubernetes.io/managed-by":"Helm","pod-template-hash":"%s","tier":"frontend"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"%s","uid":"%s","controller":true,"blockOwnerDeletion":true}],"creationTimestamp":"2026-11-18T09:14:27Z","uid":"%s","resourceVersion":"%d"},"spec":{"volumes":[{"name":"kube-api-access-%s","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],"defaultMode":420}}],"containers":[{"name":"web","image":"registry.example.com/shop/web-frontend:1.14.2","ports":[{"name":"http","containerPort":8080,"protocol":"TCP"}],"resources":{"limits":{"cpu":"500m","memory":"256Mi"},"requests":{"cpu":"100m","memory":"128Mi"}},"volumeMounts":[{"name":"kube-api-access-%s","readOnly":true,"mountPath":"/var/run/secrets/kubernetes.io/serviceaccount"}],"livenessProbe":{"httpGet":{"path":"/healthz","port":"http","scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":"default","nodeName":"node-%02d","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-18T09:14:33Z"},{"type":"PodScheduled","status":"True","lastProbeTime":null,"lastTransitionTime":"2026-11-18T09:14:27Z"}],"containerStatuses":[{"name":"web","state":{"running":{"startedAt":"2026-11-18T09:14:32Z"}},"ready":true,"restartCount":0,"image":"registry.example.com/shop/web-frontend:1.14.2","imageID":"registry.example.com/shop/web-frontend@sha256:%s","containerID":"containerd://%s","started":true}],"hostIP":"10.0.3.%d","podIP":"10.42.7.%d","qosClass":"Burstable"}}`

// quarantine renames the file of a store, as BeginCluster does.
func quarantine(s *Store) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return s.quarantine("test", s.record.ClusterUID, nil)
}

// load is Load, with the bytes of each row.
func load(s *Store, source string) (ledger.State, []*object.Object, error) {
	state, objects, err := s.Load(source)
	for _, o := range objects {
		var failed error
		o.Raw, failed = s.Fetch(source, o.Key(), o.Identity)
		err = errors.Join(err, failed)
	}
	return state, objects, err
}
