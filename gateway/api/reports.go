package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// maxReport bounds one report file.
const maxReport = 8 << 10

// ReadReports reads what the ranks of an epoch left in RUN, the files exit-<epoch>.<rank>. It must run as the
// workload's owner. A folder that is gone holds no reports; a file that can't be read is an error beside the rest.
func ReadReports(run string, epoch int64) ([]ExitReport, error) {
	entries, err := os.ReadDir(run)
	if errors.Is(err, fs.ErrNotExist) {
		return []ExitReport{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading reports: %w", err)
	}
	prefix := "exit-" + strconv.FormatInt(epoch, 10) + "."
	reports := []ExitReport{}
	var failed error
	for _, e := range entries {
		rank, err := strconv.Atoi(strings.TrimPrefix(e.Name(), prefix))
		if !strings.HasPrefix(e.Name(), prefix) || err != nil {
			continue
		}
		r, err := readReport(filepath.Join(run, e.Name()))
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		r.Epoch, r.Rank = epoch, rank
		reports = append(reports, r)
	}
	return reports, failed
}

func readReport(path string) (ExitReport, error) {
	f, err := os.Open(path)
	if err != nil {
		return ExitReport{}, fmt.Errorf("reading report: %w", err)
	}
	defer f.Close()
	var r ExitReport
	if err := json.NewDecoder(io.LimitReader(f, maxReport)).Decode(&r); err != nil {
		return ExitReport{}, fmt.Errorf("reading report %s: %w", path, err)
	}
	return r, nil
}
