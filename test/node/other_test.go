//go:build !linux

package node

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(*testing.M) {
	if os.Getenv("DELTABRIDGE_TEST_NODE") != "" {
		fmt.Println("test/node: skipped: a node requires Linux")
	}
}
