// The owner of one HDF5 handle, for the two files that talk to the library. Not for other folders: they see plain structs.
//   const Handle file(H5Fopen(path, H5F_ACC_RDONLY, access), H5Fclose, ExitCode::unreadable, concat(path, ": no HDF5 file"));
#pragma once

#include <hdf5.h>

#include <string>
#include <utility>

#include "base/error.h"

namespace lockstep {

class Handle {
 public:
  // close: H5Fclose, H5Gclose, ... of its kind. A negative id throws Error with this code and message.
  Handle(hid_t id, herr_t (*close)(hid_t), ExitCode code, const std::string& message) : id_(id), close_(close) {
    if (id_ < 0) fail(code, message);
  }
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Handle& operator=(Handle&&) = delete;
  ~Handle() { close(); }
  operator hid_t() const { return id_; }  // NOLINT: handed to the library as it is

  bool close() { return id_ < 0 || close_(std::exchange(id_, -1)) >= 0; }  // false: the library could not

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// What every access to timings.h5 asks for.
inline void configure_access(hid_t access) {
  H5Pset_fclose_degree(access, H5F_CLOSE_STRONG);
#if H5_VERSION_GE(1, 10, 7)
  H5Pset_file_locking(access, true, true);  // file systems without locks are fine: the file changes by renaming only
#endif
}

}  // namespace lockstep
