package document

import (
	"strings"
	"testing"
)

func TestSearchForBrokenLineIsBounded(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("- a\n", 2000) + " - b: c: d\n"
	if line := brokenLine([]byte(text)); line != 0 {
		t.Errorf("line %d of a document of %d bytes was found", line, len(text))
	}
}
