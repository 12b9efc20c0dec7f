package journals

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	coordinationv1 "k8s.io/api/coordination/v1"
	leases "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// prefix is the first part of the annotations, before the identity of the journal.
const prefix = "audit.deltabridge.dev/"

// Record is what a replica says about its journal.
type Record struct {
	Replica string `json:"replica"`
	// Since is the time from which on accepted events may not be delivered. Everything before was delivered.
	Since   time.Time `json:"since"`
	Renewed time.Time `json:"renewed"`
}

// Register has the records of all replicas. It is safe for concurrent use.
type Register struct {
	leases  leases.LeaseInterface
	name    string
	timeout time.Duration
}

// New returns the register in a Lease. It sends no request. timeout is that of each request.
func New(kube *rest.Config, namespace, name string, timeout time.Duration) (*Register, error) {
	client, err := leases.NewForConfig(kube)
	if err != nil {
		return nil, fmt.Errorf("register of audit journals: %w", err)
	}
	return &Register{client.Leases(namespace), name, timeout}, nil
}

// Put creates or replaces the record of a journal.
func (r *Register) Put(ctx context.Context, journal, text string) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"annotations": map[string]string{prefix + journal: text}},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	_, err = r.leases.Patch(ctx, r.name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
		if _, err = r.leases.Create(ctx, lease, metav1.CreateOptions{}); err == nil || apierrors.IsAlreadyExists(err) {
			_, err = r.leases.Patch(ctx, r.name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
	return r.wrap(err)
}

// All returns the records as they are stored, by journal.
func (r *Register) All(ctx context.Context) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	lease, err := r.leases.Get(ctx, r.name, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, r.wrap(err)
	}
	all := map[string]string{}
	for key, text := range lease.Annotations {
		if journal, ok := strings.CutPrefix(key, prefix); ok {
			all[journal] = text
		}
	}
	return all, nil
}

func (r Record) String() string {
	text, _ := json.Marshal(r) // strings and times can always be marshaled
	return string(text)
}

// parse returns a stored record. Of a record that cannot be read, only Replica is set.
func parse(text string) (record Record) {
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return Record{Replica: "unknown"}
	}
	return record
}

// Remove removes a record, unless it was replaced since it was stored as text. It returns no error in this case.
func (r *Register) Remove(ctx context.Context, journal, text string) error {
	path := "/metadata/annotations/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(prefix+journal)
	patch, err := json.Marshal([]map[string]string{
		{"op": "test", "path": path, "value": text}, {"op": "remove", "path": path},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	_, err = r.leases.Patch(ctx, r.name, types.JSONPatchType, patch, metav1.PatchOptions{})
	if apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return r.wrap(err)
}

func (r *Register) wrap(err error) error {
	if err != nil {
		err = fmt.Errorf("register of audit journals, lease %s: %w", r.name, err)
	}
	return err
}
