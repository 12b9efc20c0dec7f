package access

import (
	"crypto/sha256"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Secret returns the content of a file without trailing line breaks. key is the configuration key that names the file.
func Secret(key, file string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fileError(key, err)
	}
	secret := strings.TrimRight(string(text), "\r\n")
	if secret == "" {
		return "", fileError(key, errors.New(file+" is empty"))
	}
	return secret, nil
}

func fileError(key string, err error) *sinks.ConnectError {
	e := &sinks.ConnectError{Step: sinks.StepFiles, Key: key, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Remedy = "mount the file, or correct " + key
	case errors.Is(err, fs.ErrPermission):
		e.Remedy = "make the file readable for the user that runs the bridge"
	}
	return e
}

// Stamp returns a hash of the contents of the files. The hash changes if a file is changed, created or removed. Empty
// file names are ignored.
func Stamp(files ...string) [sha256.Size]byte {
	var all []byte
	for _, file := range files {
		if file == "" {
			continue
		}
		text, err := os.ReadFile(file)
		one := sha256.Sum256(text)
		all = append(all, one[:]...)
		if err != nil {
			all = append(all, 1)
		}
	}
	return sha256.Sum256(all)
}
