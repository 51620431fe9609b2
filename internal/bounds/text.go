package bounds

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"strconv"

	"github.com/dynxds/dynxds/internal/faults"
)

// Text returns a text of a peer as one printable line of about limit bytes. A longer text is cut, and
// its length and the start of its SHA-256 hash follow, so that two long texts can be told apart:
//
//	no such cluster: aaaaaaaa... (5000000 bytes, sha256 0f8fb1cd)
//
// The cost depends on limit, but for the hash, which is as fast as the text is read.
func Text(text string, limit int) string {
	return cut(text, limit, "")
}

// Quote returns a name that a peer or the user chose, in quotes, for an error. A name of more than ErrorText is
// cut as Text cuts it.
func Quote(name string) string {
	if len(name) <= ErrorText {
		return strconv.Quote(name)
	}
	return strconv.Quote(faults.Shorten(name, ErrorText)) + identity(name)
}

// Error returns an error with text of a peer whose text has about limit bytes at most, for errors that are
// kept. One that is longer is replaced by an error without a chain, so that nothing of it stays in memory. Line
// breaks stay, as they separate errors.
func Error(err error, limit int) error {
	text := err.Error()
	if len(text) <= limit {
		return err
	}
	return errors.New(cut(text, limit, "\n"))
}

func cut(text string, limit int, keep string) string {
	if len(text) <= limit {
		return faults.Printable(text, keep)
	}
	return faults.Printable(faults.Shorten(text, limit), keep) + identity(text)
}

// identity is what follows a text that was cut.
func identity(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf(" (%d bytes, sha256 %x)", len(text), sum[:4])
}
