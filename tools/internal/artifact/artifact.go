// Package artifact has the parts that the image and the archives of a release have in common: tar archives, license
// texts, SBOMs. All of them are reproducible: they depend only on the input.
package artifact

import (
	"archive/tar"
	"bytes"
	"cmp"
	"flag"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/deltabridge/deltabridge/tools/internal/modules"
)

const (
	// Source is the address of the repository, without a slash at its end.
	Source = "https://github.com/deltabridge/deltabridge"
	// License is the SPDX identifier of the project's license.
	License = "Apache-2.0"
	// Registry is where images and charts are published.
	Registry = "ghcr.io/deltabridge"
)

// Build says what a program was built from.
type Build struct {
	Dir     string // directory of the project
	Version string // of the program: the name of a tag, such as v0.1.0, or what git describe prints
	Commit  string
	Date    time.Time // of the commit, in UTC
}

// Flags defines flags that set b.
func (b *Build) Flags(flags *flag.FlagSet) {
	b.Date = time.Unix(0, 0).UTC()
	flags.StringVar(&b.Dir, "dir", ".", "`directory` of the project")
	flags.StringVar(&b.Version, "version", "dev", "version of the program")
	flags.StringVar(&b.Commit, "commit", "unknown", "commit of the program")
	flags.Func("date", "date of the commit, in RFC 3339 format (default: 1970)", func(text string) error {
		if text == "" || text == "unknown" {
			return nil
		}
		date, err := time.Parse(time.RFC3339, text)
		b.Date = date.UTC()
		return err
	})
}

// Tag returns the version as tags of images and versions of charts have it: without the v.
func (b *Build) Tag() string { return strings.TrimPrefix(b.Version, "v") }

// File is a file of an archive or, if its name ends in a slash, a directory.
type File struct {
	Name  string
	Mode  int64
	Owner int // user and group
	Data  []byte
}

// ReadFile returns the file at a path under another name.
func ReadFile(name, from string, mode int64) (File, error) {
	data, err := os.ReadFile(from)
	return File{Name: name, Mode: mode, Data: data}, err
}

// LicenseFiles returns the license texts that must be distributed with a program: those of the project and of the
// modules in the program, below a directory whose name ends in a slash.
func LicenseFiles(dir, target string, parts []modules.Module) ([]File, error) {
	own, err := ReadFile(target+"deltabridge/LICENSE", filepath.Join(dir, "LICENSE"), 0o644)
	files := []File{own}
	for _, m := range parts {
		for name, text := range m.Texts {
			files = append(files, File{Name: target + strings.ToLower(m.Path) + "/" + name, Mode: 0o644, Data: text})
		}
	}
	return files, err
}

// Tar packs files and their parent directories, which are owned by root.
func Tar(files []File, date time.Time) ([]byte, error) {
	known := map[string]bool{}
	for _, f := range files {
		known[f.Name] = true
	}
	for _, f := range files {
		for dir := path.Dir(path.Clean(f.Name)); dir != "."; dir = path.Dir(dir) {
			if !known[dir+"/"] {
				known[dir+"/"] = true
				files = append(files, File{Name: dir + "/", Mode: 0o755})
			}
		}
	}
	slices.SortFunc(files, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.Name, Mode: f.Mode, Size: int64(len(f.Data)),
			Uid: f.Owner, Gid: f.Owner, ModTime: date, Format: tar.FormatPAX,
		}
		if strings.HasSuffix(f.Name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
