package peercert

import (
	"strings"
	"unicode"

	"github.com/dynxds/dynxds/internal/faults"
)

// maxError bounds the errors of handshakes, in bytes. Those of Verify fit with all they list.
const maxError = 6000

// Bounded returns the error of a handshake with its text shortened and without control
// characters: packages x509 and tls quote from the certificates of the peer, which may send
// hundreds of kilobytes of them, and each RPC and each line of the log would repeat that.
func Bounded(err error) error {
	text := strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, faults.Shorten(err.Error(), maxError))
	return &boundedError{text, err}
}

type boundedError struct {
	text string
	err  error
}

// Error returns the text.
func (e *boundedError) Error() string { return e.text }

// Unwrap returns the whole error.
func (e *boundedError) Unwrap() error { return e.err }
