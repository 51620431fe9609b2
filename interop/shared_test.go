package interop_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// sharedDir is a folder for what tests share because it takes seconds to make. TestMain removes it.
var sharedDir = sync.OnceValues(func() (dir string, err error) { return os.MkdirTemp("", "interop") })

func removeShared() {
	if dir, err := sharedDir(); err == nil {
		os.RemoveAll(dir)
	}
}

// builtCommand builds dynxds.
var builtCommand = sync.OnceValues(func() (path string, err error) {
	dir, err := sharedDir()
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "dynxds")
	return path, runIn("..", 10*time.Minute, "go", "build", "-o", path, "./cmd/dynxds")
})

// installedJS makes a folder with the program in js and its packages.
var installedJS = sync.OnceValues(func() (dir string, err error) {
	parent, err := sharedDir()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(parent, "js")
	if err := os.CopyFS(dir, os.DirFS("js")); err != nil {
		return "", err
	}
	return dir, runIn(dir, 2*time.Minute, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
})

// runIn runs a program in a folder, for some time at most. Its output is in the error.
func runIn(dir string, most time.Duration, program string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}
