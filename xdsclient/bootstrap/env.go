package bootstrap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/dynxds/dynxds/internal/bounds"
)

// The environment variables that gRPC reads a bootstrap from (gRFC A27).
const (
	// envFile names the path of a bootstrap file.
	envFile = "GRPC_XDS_BOOTSTRAP"
	// envInline holds a bootstrap itself. It is read only if envFile is unset.
	envInline = "GRPC_XDS_BOOTSTRAP_CONFIG"
	// envTrusted holds the server_uri of management servers, separated by commas, that
	// have FeatureTrustedXDSServer in the bootstrap of the environment. It is for
	// bootstraps that a program generates which does not write the feature, as Istio's.
	envTrusted = "DYNXDS_TRUSTED_XDS_SERVERS"
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
// bootstrap is wrong. The servers that DYNXDS_TRUSTED_XDS_SERVERS
// names have the feature trusted_xds_server.
func FromEnv() (*Config, error) {
	if path := os.Getenv(envFile); path != "" {
		data, err := bounds.ReadFile(path, maxSize)
		switch {
		case err != nil && looksInline(path):
			return nil, errors.New(envFile + " has a bootstrap itself, where the path of a file is expected; set " + envInline + " to it instead")
		case errors.Is(err, bounds.ErrNotRegular):
			// Later channels read the file again, when a pipe is empty.
			return nil, fmt.Errorf("cannot read the xDS bootstrap that %s names: %w; what another program writes can be the content of %s", envFile, err, envInline)
		case err != nil && !filepath.IsAbs(path):
			directory, _ := os.Getwd()
			return nil, fmt.Errorf("cannot read the xDS bootstrap that %s names, in the working directory %s: %w; an absolute path does not depend on it", envFile, directory, err)
		case err != nil:
			return nil, fmt.Errorf("cannot read the xDS bootstrap that %s names: %w", envFile, err)
		}
		return parse(path, data, trustedServers())
	}
	if inline := os.Getenv(envInline); inline != "" {
		c, err := parse(envInline, []byte(inline), trustedServers())
		if found, ok := errors.AsType[*Faults](err); ok && len(found.List) > 0 && !looksInline(inline) {
			found.List[0].Suggestion = "the path of a file belongs in " + envFile
		}
		return c, err
	}
	return nil, ErrNotConfigured
}

// looksInline reports whether a text looks like a bootstrap, which is a JSON object, rather than
// like the path of one.
func looksInline(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "{") }

func trustedServers() []string {
	return strings.FieldsFunc(os.Getenv(envTrusted), func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
}
