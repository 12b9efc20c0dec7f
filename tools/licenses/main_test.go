package main

import (
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/tools/internal/modules"
)

// What is in the program is allowed and listed.
func TestProject(t *testing.T) {
	if err := run(t.Context(), "../..", false); err != nil {
		t.Error(err)
	}
}

func TestNotAllowed(t *testing.T) {
	err := check([]modules.Module{
		{Path: "example.com/good", Licenses: []string{"MIT", "Apache-2.0"}},
		{Path: "example.com/bad", Version: "v1.0.0", Licenses: []string{"AGPL-3.0", "MIT"}},
	})
	if err == nil || !strings.Contains(err.Error(), "example.com/bad v1.0.0: license AGPL-3.0 is not allowed") ||
		strings.Contains(err.Error(), "good") {
		t.Error(err)
	}
}
