package bounds

import (
	"fmt"
	"io"
	"os"
)

// ReadFile reads a file of at most limit bytes. It does not trust the file's reported
// size, which devices and /proc get wrong.
func ReadFile(path string, limit int64) ([]byte, error) {
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
