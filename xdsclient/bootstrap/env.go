package bootstrap

import (
	"errors"
	"fmt"
	"os"

	"github.com/dynxds/dynxds/internal/document"
)

// The environment variables that gRPC reads a bootstrap from (gRFC A27).
const (
	// envFile names the path of a bootstrap file.
	envFile = "GRPC_XDS_BOOTSTRAP"
	// envInline holds a bootstrap itself. It is read only if envFile is unset.
	envInline = "GRPC_XDS_BOOTSTRAP_CONFIG"
)

// maxSize is the largest bootstrap that is read, in bytes. A real one has a few
// kilobytes; the bound keeps a wrong path from filling the memory.
const maxSize = 4 << 20

// ErrNotConfigured says that the environment names no bootstrap.
var ErrNotConfigured = errors.New("no xDS bootstrap is configured: set " + envFile +
	" to the path of a bootstrap file, or " + envInline + " to its content")

// FromEnv reads the bootstrap that the environment names. An empty variable counts as
// unset. If envFile is set and its file cannot be used, that is an error, and envInline is
// not looked at. The error is ErrNotConfigured if neither is set, and a *Faults if the
// bootstrap is wrong.
func FromEnv() (*Config, error) {
	if path := os.Getenv(envFile); path != "" {
		data, err := document.ReadFile(path, maxSize)
		if err != nil {
			return nil, fmt.Errorf("cannot read the xDS bootstrap that %s names: %w", envFile, err)
		}
		return Parse(path, data)
	}
	if inline := os.Getenv(envInline); inline != "" {
		return Parse(envInline, []byte(inline))
	}
	return nil, ErrNotConfigured
}
