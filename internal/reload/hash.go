package reload

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"

	"sigs.k8s.io/yaml"
)

// HashFile returns a hash of a configuration file, without the keys in which replicas can differ.
func HashFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return hash(text)
}

func hash(text []byte) (string, error) {
	var document map[string]any
	if err := yaml.Unmarshal(text, &document); err != nil {
		return "", err
	}
	for _, key := range []string{"http", "kubeconfig", "log"} {
		delete(document, key)
	}
	if state, ok := document["state"].(map[string]any); ok {
		delete(state, "path")
	}
	text, err := json.Marshal(document) // in the order of the keys
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8]), nil
}
