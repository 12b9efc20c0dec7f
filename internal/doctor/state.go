package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
	stepFolder, stepWrite, stepSpills, stepSpace, stepCheckpoint, stepDestination = "folder", "write", "spills", "space", "checkpoint", "destination"

	// probeSize is how much is written to find out whether the folder takes anything.
	probeSize = 64 << 10
)

func (e *examination) state(ctx context.Context) {
	folder := e.Config.State.Path
	existing, err := nearestFolder(folder)
	if err != nil {
		e.fail(stepFolder, folder, err, stateRemedy(err))
		return
	}
	if existing != folder {
		e.ok(stepFolder, folder, "does not exist yet; it would be made in "+existing)
	} else {
		e.ok(stepFolder, folder, "exists")
	}
	if err := tryToWrite(existing); err != nil {
		e.fail(stepWrite, "", err, stateRemedy(err))
	} else {
		e.ok(stepWrite, "", "can be written")
	}
	if remedy, err := OrphanedEvents(e.Config); err != nil {
		e.fail(stepSpills, "", err, remedy)
	}
	e.space(folder, existing)
	e.checkpoint(ctx, folder)
}

func stateRemedy(err error) string {
	if remedy := boltfile.Remedy(err); remedy != "" {
		return remedy
	}
	return "set state.path to a folder that the bridge can write to"
}

// nearestFolder is the folder, or else the innermost one around it that exists.
func nearestFolder(folder string) (string, error) {
	for path := folder; ; path = filepath.Dir(path) {
		info, err := os.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && filepath.Dir(path) != path:
		case err != nil:
			return "", err
		case !info.IsDir():
			return "", fmt.Errorf("%s is no folder", path)
		default:
			return path, nil
		}
	}
}

// tryToWrite writes a file and removes it.
func tryToWrite(folder string) error {
	file, err := os.CreateTemp(folder, ".bridge-doctor-*")
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, probeSize))
	return errors.Join(err, file.Sync(), file.Close(), os.Remove(file.Name()))
}

// space compares what is free with what the spills may take.
func (e *examination) space(folder, existing string) {
	free, err := freeSpace(existing)
	if err != nil {
		e.warn(stepSpace, "", "how much is free can't be found out: "+err.Error(), "")
		return
	}
	var wanted, taken int64
	for n := range e.Config.Sinks {
		s := &e.Config.Sinks[n]
		wanted += int64(s.Buffer.Spill.MaxBytes)
		taken += spillBytes(folder, s.Name)
	}
	detail := fmt.Sprintf("%v free, the spills may take %v", size(free), size(wanted))
	if taken > 0 {
		detail += fmt.Sprintf(" and have %v", size(taken))
	}
	if free < wanted-taken {
		e.warn(stepSpace, "", detail, "make room, or lower buffer.spill.maxBytes: a full disk holds up the checkpoint too")
		return
	}
	e.ok(stepSpace, "", detail)
}

// checkpoint looks at what an earlier process has left.
func (e *examination) checkpoint(ctx context.Context, folder string) {
	s, err := checkpoint.Peek(folder)
	switch {
	case err != nil:
		e.fail(stepCheckpoint, "", err, stateRemedy(err))
	case !s.Exists:
		e.ok(stepCheckpoint, "", "there is none: the bridge will list everything")
	case s.Locked:
		e.running = true
		e.warn(stepCheckpoint, "", fmt.Sprintf("a bridge uses it; written %s ago", age(s.LastCommit)), "if it is another bridge than this one, give each a state.path of its own")
	case s.Unusable != "":
		e.warn(stepCheckpoint, "", "it will be set aside: "+s.Unusable, "deletions that were missed are lost; restore the file from a backup if there is one")
	case e.cluster != "" && s.ClusterUID != "" && s.ClusterUID != checkpoint.UnknownCluster && s.ClusterUID != e.cluster:
		e.warn(stepCheckpoint, "", fmt.Sprintf("it is of another cluster (%q, uid %s) and will be set aside", s.ClusterName, s.ClusterUID), "give each cluster a state.path of its own, or correct the kubeconfig")
	default:
		e.destinations = s.Destinations
		e.resume(ctx, s)
	}
}

// resume tries whether the watch can go on where the checkpoint ends, by the source that is furthest back.
func (e *examination) resume(ctx context.Context, s checkpoint.Summary) {
	detail := fmt.Sprintf("%s, %v, written %s ago", counted(len(s.States), "resource"), size(s.SizeBytes), age(s.LastCommit))
	var oldest *ledger.State
	var least uint64
	for n := range s.States {
		version, err := strconv.ParseUint(s.States[n].ResourceVersion, 10, 64)
		if err == nil && (oldest == nil || version < least) {
			oldest, least = &s.States[n], version
		}
	}
	if oldest == nil || e.api == nil {
		e.ok(stepCheckpoint, "", detail)
		return
	}
	source := oldest.Source
	err := e.reachesBack(ctx, &fleet.Watched{
		Resource: source.Resource, Namespace: source.Namespace, Namespaced: e.namespaced[source.Resource],
		LabelSelector: source.LabelSelector, FieldSelector: source.FieldSelector,
	}, oldest.ResourceVersion)
	switch {
	case errors.Is(err, informer.ErrFutureVersion):
		e.warn(stepCheckpoint, "", detail+": "+err.Error(), "the bridge will list everything, and say so by gap events; nothing is to be done")
	case err != nil:
		e.warn(stepCheckpoint, "", fmt.Sprintf("%s: the API server's history does not reach back to it: %v", detail, err), "the bridge will list everything, and say so by gap events; to keep more history, raise --etcd-compaction-interval of the API server")
	default:
		e.ok(stepCheckpoint, "", detail+"; the watch can go on from there")
	}
}

// size is a number of bytes for people.
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
