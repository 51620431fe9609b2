package bounds

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// ErrNotRegular is in the error of ReadFile for a pipe, a device or a directory.
var ErrNotRegular = errors.New("not a regular file")

// ReadFile reads a regular file of at most limit bytes. Opening a named pipe might never return. The file's reported
// size is not trusted: /proc gets it wrong.
func ReadFile(path string, limit int64) ([]byte, error) {
	switch info, err := os.Stat(path); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is %w", path, ErrNotRegular)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than the %d bytes that are allowed", path, limit)
	}
	return data, nil
}
