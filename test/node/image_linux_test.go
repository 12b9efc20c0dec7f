package node

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
)

// imageOf returns the name of the image that writeImage makes.
func imageOf(program string) string { return "node.test/" + program + ":1" }

// writeImage writes an image that contains only a static program of the directory bin, in the format of `docker save`.
func writeImage(program string) error {
	binary, err := os.ReadFile(filepath.Join(dir, "bin", program))
	if err != nil {
		return err
	}
	layer, err := archive(map[string][]byte{program: binary})
	if err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"os": "linux", "architecture": runtime.GOARCH,
		"config": map[string]any{"Entrypoint": []string{"/" + program}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{fmt.Sprintf("sha256:%x", sha256.Sum256(layer))}},
	})
	if err != nil {
		return err
	}
	manifest, err := json.Marshal([]map[string]any{
		{"Config": "config.json", "RepoTags": []string{imageOf(program)}, "Layers": []string{"layer.tar"}},
	})
	if err != nil {
		return err
	}
	image, err := archive(map[string][]byte{"manifest.json": manifest, "config.json": config, "layer.tar": layer})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, program+".tar"), image, 0o644)
}

func archive(files map[string][]byte) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for name, data := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
