package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deltabridge/deltabridge/internal/boltfile"
	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

const (
	stepDirectory   = "directory"
	stepWrite       = "write"
	stepSpills      = "spills"
	stepSpace       = "space"
	stepCheckpoint  = "checkpoint"
	stepDestination = "destination"
	stepPaused      = "paused"

	// probeSize is the size of the file that tryToWrite writes.
	probeSize = 64 << 10
)

func (e *examination) checkState(ctx context.Context) {
	dir := e.cfg.State.Path
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
	if remedy, err := OrphanedEvents(e.cfg); err != nil {
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
	free, err := files.Free(existing)
	if err != nil {
		e.warn(stepSpace, "", "cannot determine the free space: "+err.Error(), "")
		return
	}
	var limit, used int64
	for n := range e.cfg.Sinks {
		s := &e.cfg.Sinks[n]
		limit += s.Buffer.Spill.MaxBytes
		used += spillBytes(dir, s.Name)
	}
	detail := fmt.Sprintf("%s free; spills can take up to %s", size(free), size(limit))
	if used > 0 {
		detail += " and use " + size(used) + " now"
	}
	if free < limit-used {
		e.warn(stepSpace, "", detail,
			"free some space, or lower buffer.spill.maxBytes: if the disk is full, the checkpoint can't be written either")
		return
	}
	e.ok(stepSpace, "", detail)
}

// size formats a number of bytes with a binary unit. It rounds down to mebibytes.
func size(n int64) string { return resource.NewQuantity(n>>20<<20, resource.BinarySI).String() }

// checkCheckpoint checks whether the bridge can use the checkpoint of the previous process.
func (e *examination) checkCheckpoint(ctx context.Context, dir string) {
	s, err := checkpoint.Peek(dir)
	if err == nil && !s.Locked {
		err = checkpoint.CheckFormats(dir)
	}
	newer, isNewer := errors.AsType[files.NewerFormatError](err)
	switch {
	case isNewer:
		e.fail(stepCheckpoint, "", errors.New(newer.Problem()), newer.Remedy())
	case err != nil:
		e.fail(stepCheckpoint, "", err, stateRemedy(err))
	case !s.Exists:
		e.ok(stepCheckpoint, "", "there is none yet: the bridge will list everything")
	case s.Locked:
		e.running = true
		ctx, cancel := context.WithTimeout(ctx, stepTimeout)
		defer cancel()
		e.paused, _ = control.RequestPaused(ctx, dir) // fails if the bridge is a standby
		e.warn(stepCheckpoint, "", fmt.Sprintf("a bridge uses it; last written %s ago", age(s.LastCommit)),
			"if that is a different bridge, give each bridge its own state.path")
	case s.Unusable != "":
		e.warn(stepCheckpoint, "", "it will be quarantined: "+s.Unusable,
			"restore the file from a backup if there is one; "+
				"without it, the bridge does not know which objects were deleted while it was down")
	case e.cluster != "" && s.ClusterUID != "" && s.ClusterUID != checkpoint.UnknownCluster && s.ClusterUID != e.cluster:
		e.warn(stepCheckpoint, "",
			fmt.Sprintf("it belongs to another cluster (%q, uid %s) and will be quarantined", s.ClusterName, s.ClusterUID),
			"give each cluster its own state.path, or correct the kubeconfig")
	default:
		e.destinations, e.paused = s.Destinations, s.Paused
		e.ok(stepCheckpoint, "", fmt.Sprintf("%d resources, last written %s ago", len(s.States), age(s.LastCommit)))
	}
}

func age(t time.Time) time.Duration { return max(time.Since(t), 0).Round(time.Second) }
