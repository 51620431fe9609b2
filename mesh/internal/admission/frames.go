package admission

import "encoding/binary"

// Of HTTP/2 (RFC 9113, sections 4.1 and 6): the sizes of the client's preface and of the header of a frame, types of frames, and flags.
const (
	prefaceSize = 24
	headerSize  = 9

	frameData, frameHeaders, frameReset = 0, 1, 3

	flagEndStream, flagPadded = 0x1, 0x8
)

// frames follows the frames of one direction of a connection.
type frames struct {
	// on is called when a frame begins, and data with each part of the payload of a DATA frame, without padding.
	on   func(kind, flags byte, stream uint32)
	data func(stream uint32, part []byte)
	// end is called when the payload of a frame is over, for a frame that ends the stream.
	end func(stream uint32)

	// skip is how many bytes follow that are neither of a header nor DATA.
	skip   int
	header [headerSize]byte
	have   int
	// What follows is of the present DATA frame: how many bytes of DATA there are still, and whether the length of its padding comes first.
	rest   int
	padded bool
}

// kind, flags and stream return the parts of the present header.
func (f *frames) kind() byte     { return f.header[3] }
func (f *frames) flags() byte    { return f.header[4] }
func (f *frames) stream() uint32 { return binary.BigEndian.Uint32(f.header[5:]) &^ (1 << 31) }

// follow goes on with the next bytes, whatever their boundaries.
func (f *frames) follow(b []byte) {
	for len(b) > 0 {
		switch {
		case f.padded:
			f.padded = false
			padding := min(int(b[0]), f.rest-1)
			f.rest, f.skip = f.rest-1-padding, padding
			b = b[1:]
			f.over()
		case f.rest > 0:
			n := min(f.rest, len(b))
			f.data(f.stream(), b[:n])
			f.rest, b = f.rest-n, b[n:]
			f.over()
		case f.skip > 0:
			n := min(f.skip, len(b))
			f.skip, b = f.skip-n, b[n:]
		default:
			n := copy(f.header[f.have:], b)
			f.have, b = f.have+n, b[n:]
			f.begin()
		}
	}
}

// begin begins a frame if its header is there.
func (f *frames) begin() {
	if f.have < headerSize {
		return
	}
	f.have = 0
	size := int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
	f.on(f.kind(), f.flags(), f.stream())
	if f.kind() != frameData {
		f.skip = size
	} else {
		f.rest, f.padded = size, size > 0 && f.flags()&flagPadded != 0
	}
	f.over()
}

// over ends the stream of the present frame if nothing follows that is of interest.
func (f *frames) over() {
	ends := f.kind() == frameReset || f.kind() <= frameHeaders && f.flags()&flagEndStream != 0
	if ends && f.rest == 0 && !f.padded {
		f.end(f.stream())
	}
}
