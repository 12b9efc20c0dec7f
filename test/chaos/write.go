package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

func sortRevs(revs []*Rev) { slices.SortFunc(revs, func(a, b *Rev) int { return int(a.RV - b.RV) }) }

// writer makes the changes of one step.
type writer struct {
	*rand.Rand

	w     *world
	names map[string]string
	step  Step
	there map[string]bool // as far as this writer knows
}

// run makes the changes. What is not possible, because another writer was there before or the API server is away, is
// left out.
func (x *writer) run(ctx context.Context) {
	x.Rand = rand.New(rand.NewPCG(x.step.Seed, 7))
	x.there = map[string]bool{}
	for n := range x.step.Count {
		if err := x.change(ctx, n); err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
			pause(ctx, 50*time.Millisecond) // it does not answer
		}
		pause(ctx, x.step.Pause)
		if ctx.Err() != nil {
			return
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// kinds of the resources, for creating.
func kinds() map[string]string {
	return map[string]string{
		"configmaps":      "ConfigMap",
		"secrets":         "Secret",
		"serviceaccounts": "ServiceAccount",
		boxes:             "Box",
	}
}

func (x *writer) change(ctx context.Context, n int) error {
	resource := Resources()[x.IntN(len(Resources()))]
	namespace := x.names[namespaces()[x.IntN(len(namespaces()))]]
	name := fmt.Sprintf("o%d", x.IntN(10))
	team := []any{"red", "blue", "red", "blue", nil}[x.IntN(5)]
	pad := 100
	switch dice := x.IntN(100); {
	case dice < 3:
		pad = 30 << 10
	case dice < 20:
		pad = 4 << 10
	}
	deletion := x.IntN(100) < 15
	api := x.w.api.Resource(resourceOf(resource)).Namespace(namespace)
	key := resource + "/" + namespace + "/" + name
	annotations := map[string]any{stampNote: fmt.Sprintf("%d-%d", x.step.Seed, n)}
	metadata := map[string]any{"labels": map[string]any{teamLabel: team}, "annotations": annotations}
	object := map[string]any{"metadata": metadata}
	switch text := strings.Repeat("pads", pad/4); resource {
	case "configmaps", "secrets": // where it is base64
		object["data"] = map[string]any{"pad": text}
	case boxes:
		object["spec"] = map[string]any{"pad": text}
	default:
		annotations[padNote] = text[:min(len(text), 4<<10)]
	}
	var err error
	switch {
	case deletion && x.there[key]:
		err = api.Delete(ctx, name, metav1.DeleteOptions{})
		x.there[key] = false
	case x.there[key]:
		var patch []byte
		if patch, err = json.Marshal(object); err == nil {
			_, err = api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
		x.there[key] = !apierrors.IsNotFound(err)
	default:
		metadata["name"] = name
		if team == nil {
			delete(metadata, "labels")
		}
		gvr := resourceOf(resource)
		object["apiVersion"], object["kind"] = gvr.GroupVersion().String(), kinds()[resource]
		_, err = api.Create(ctx, &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
		x.there[key] = err == nil || apierrors.IsAlreadyExists(err)
	}
	return err
}
