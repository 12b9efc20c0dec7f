package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/informer/fleet"
	"github.com/deltabridge/deltabridge/pkg/ledger"
)

const (
	stepDirectory   = "directory"
	stepWrite       = "write"
	stepSpills      = "spills"
	stepSpace       = "space"
	stepCheckpoint  = "checkpoint"
	stepDestination = "destination"

	// probeSize is the size of the file that tryToWrite writes.
	probeSize = 64 << 10
)

func (e *examination) checkState(ctx context.Context) {
	dir := e.Config.State.Path
	existing, err := nearestDirectory(dir)
	if err != nil {
		e.fail(stepDirectory, dir, err, stateRemedy(err))
		return
	}
	if existing != dir {
		e.ok(stepDirectory, dir, "does not exist yet; the bridge will create it in "+existing)
	} else {
		e.ok(stepDirectory, dir, "exists")
	}
	if err := tryToWrite(existing); err != nil {
		e.fail(stepWrite, "", err, stateRemedy(err))
	} else {
		e.ok(stepWrite, "", "writable")
	}
	if remedy, err := OrphanedEvents(e.Config); err != nil {
		e.fail(stepSpills, "", err, remedy)
	}
	e.checkSpace(dir, existing)
	e.checkCheckpoint(ctx, dir)
}

func stateRemedy(err error) string {
	if remedy := boltfile.Remedy(err); remedy != "" {
		return remedy
	}
	return "set state.path to a directory that the bridge can write to"
}

// nearestDirectory returns the directory. If the directory does not exist, it returns the nearest ancestor that exists.
func nearestDirectory(dir string) (string, error) {
	for path := dir; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && filepath.Dir(path) != path:
		case err != nil:
			return "", err
		case !info.IsDir():
			return "", fmt.Errorf("%s is not a directory", path)
		default:
			return path, nil
		}
	}
}

// tryToWrite writes a file to a directory and removes the file.
func tryToWrite(dir string) error {
	file, err := os.CreateTemp(dir, ".bridge-doctor-*")
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, probeSize))
	return errors.Join(err, file.Sync(), file.Close(), os.Remove(file.Name()))
}

// checkSpace compares the free disk space with the maximum size of the spills.
func (e *examination) checkSpace(dir, existing string) {
	free, err := freeSpace(existing)
	if err != nil {
		e.warn(stepSpace, "", "cannot determine the free space: "+err.Error(), "")
		return
	}
	var limit, used int64
	for n := range e.Config.Sinks {
		s := &e.Config.Sinks[n]
		limit += s.Buffer.Spill.MaxBytes
		used += spillBytes(dir, s.Name)
	}
	detail := fmt.Sprintf("%v free; spills can take up to %v", size(free), size(limit))
	if used > 0 {
		detail += fmt.Sprintf(" and use %v now", size(used))
	}
	if free < limit-used {
		e.warn(stepSpace, "", detail,
			"free some space, or lower buffer.spill.maxBytes: if the disk is full, the checkpoint can't be written either")
		return
	}
	e.ok(stepSpace, "", detail)
}

// checkCheckpoint checks whether the bridge can use the checkpoint of the previous process.
func (e *examination) checkCheckpoint(ctx context.Context, dir string) {
	s, err := checkpoint.Peek(dir)
	switch {
	case err != nil:
		e.fail(stepCheckpoint, "", err, stateRemedy(err))
	case !s.Exists:
		e.ok(stepCheckpoint, "", "there is none yet: the bridge will list everything")
	case s.Locked:
		e.running = true
		e.warn(stepCheckpoint, "", fmt.Sprintf("a bridge uses it; last written %s ago", age(s.LastCommit)),
			"if that is a different bridge, give each bridge its own state.path")
	case s.Unusable != "":
		e.warn(
			stepCheckpoint,
			"",
			"it will be quarantined: "+s.Unusable,
			"restore the file from a backup if there is one; without it, the bridge does not know what was deleted in the meantime",
		)
	case e.cluster != "" && s.ClusterUID != "" && s.ClusterUID != checkpoint.UnknownCluster && s.ClusterUID != e.cluster:
		e.warn(stepCheckpoint, "",
			fmt.Sprintf("it belongs to another cluster (%q, uid %s) and will be quarantined", s.ClusterName, s.ClusterUID),
			"give each cluster its own state.path, or correct the kubeconfig")
	default:
		e.destinations = s.Destinations
		e.checkResume(ctx, s)
	}
}

// checkResume checks whether watches can resume from the checkpoint. It tests only the source with the lowest
// resourceVersion.
func (e *examination) checkResume(ctx context.Context, s checkpoint.Summary) {
	detail := fmt.Sprintf(
		"%s, %v, last written %s ago",
		counted(len(s.States), "resource"),
		size(s.SizeBytes),
		age(s.LastCommit),
	)
	if len(s.States) == 0 || e.client == nil {
		e.ok(stepCheckpoint, "", detail)
		return
	}
	oldest := slices.MinFunc(s.States, func(a, b ledger.State) int {
		return cmp.Compare(revision(a.ResourceVersion), revision(b.ResourceVersion))
	})
	source := oldest.Source
	err := e.tryToResume(ctx, &fleet.Watched{
		Resource: source.Resource, Namespace: source.Namespace, Namespaced: e.namespaced[source.Resource],
		LabelSelector: source.LabelSelector, FieldSelector: source.FieldSelector,
	}, oldest.ResourceVersion)
	switch {
	case errors.Is(err, informer.ErrFutureVersion):
		e.warn(stepCheckpoint, "", detail+": "+err.Error(),
			"no action needed: the bridge will list everything and send gap events")
	case err != nil:
		e.warn(stepCheckpoint, "", fmt.Sprintf("%s: the API server's history does not reach back to it: %v", detail, err),
			"no action needed: the bridge will list everything and send gap events; "+
				"to keep more history, raise --etcd-compaction-interval of the API server")
	default:
		e.ok(stepCheckpoint, "", detail+"; the watch can resume from it")
	}
}

// revision converts a resourceVersion to a number. If the resourceVersion is not a number, it returns math.MaxUint64.
func revision(resourceVersion string) uint64 {
	n, err := strconv.ParseUint(resourceVersion, 10, 64)
	if err != nil {
		return math.MaxUint64
	}
	return n
}

// size formats a number of bytes with a binary unit.
func size(n int64) string {
	units := []string{"Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
	if n < 1<<10 {
		return strconv.FormatInt(n, 10)
	}
	value, unit := float64(n)/1024, 0
	for ; value >= 1024 && unit < len(units)-1; unit++ {
		value /= 1024
	}
	return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0") + units[unit]
}

func age(t time.Time) time.Duration { return max(time.Since(t), 0).Round(time.Second) }
